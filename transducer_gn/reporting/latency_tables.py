"""Tables of emission times."""

from transducer_gn.evaluation.bootstrap import Difference
from transducer_gn.evaluation.latency_results import Latency, LatencyDifference, mean_emission
from transducer_gn.reporting.error_tables import measure_name
from transducer_gn.reporting.table import Table, p_text, signed


def latency_table(latencies: list[Latency]) -> Table:
    """Mean emission times of one system by test set."""
    rows = []
    for latency in latencies:
        mean = mean_emission(latency)
        tokens = sum(len(utterance.tokens) for utterance in latency.utterances)
        rows.append([latency.part, f"{mean.value:.0f}", f"{mean.low:.0f} to {mean.high:.0f}", str(tokens)])
    note = (
        "Expected over all alignments of the reference, from the beginning of the utterance; only differences say much."
    )
    return Table(f"Mean emission time of {latencies[0].system}", ["", "ms", "95 % interval", "tokens"], rows, [note])


def difference_table(title: str, differences: dict[str, LatencyDifference], names: tuple[str, str]) -> Table:
    """How two systems differ, by test set and group of tokens."""
    rows = []
    for part, difference in differences.items():
        for name, change in difference.emission.items():
            label = "all tokens" if name == "all" else f"tokens of {measure_name(name)}"
            rows.append([f"{part}, {label}", *cells(change)])
        for label, change in (("word first shown", difference.shown), ("word last changed", difference.settled)):
            if change is not None:
                rows.append([f"{part}, {label}", *cells(change)])
    notes = ["Below 0 is earlier. Paired bootstrap over utterances; words are those that both systems get right."]
    return Table(title, ["emission, ms", *names, "change", "95 % interval", "p"], rows, notes)


def position_table(title: str, difference: LatencyDifference) -> Table:
    """The difference by position of the token in its utterance."""
    rows = [
        [
            f"token {number}",
            signed(change.change.value, 1),
            f"{signed(change.change.low, 1)} to {signed(change.change.high, 1)}",
        ]
        for number, change in enumerate(difference.positions, start=1)
    ]
    return Table(title, ["position", "change, ms", "95 % interval"], rows)


def cells(change: Difference) -> list[str]:
    """Both values, the change, its interval and p-value."""
    return [
        f"{change.first:.0f}",
        f"{change.second:.0f}",
        signed(change.change.value, 1),
        f"{signed(change.change.low, 1)} to {signed(change.change.high, 1)}",
        p_text(change.p_value),
    ]
