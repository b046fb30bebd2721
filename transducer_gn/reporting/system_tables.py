"""Tables of one system, or of two compared: error rates and emission times by test set."""

from collections.abc import Mapping, Sequence

from transducer_gn.evaluation.bootstrap import Difference
from transducer_gn.evaluation.latency_results import Latency, LatencyDifference, mean_emission
from transducer_gn.evaluation.results import Results, measure_summary
from transducer_gn.recognition.error_rates import total_errors
from transducer_gn.reporting.table import Table, p_text, percent, signed


def measure_name(name: str) -> str:
    """What a measure is called in tables: "x" is about the sentences of group x, "x words" about single words."""
    if name == "all":
        return "all words"
    return name if name.endswith(" words") else f"{name} sentences"


def rates_table(results: Sequence[Results]) -> Table:
    """Error rates of one system on its test sets, with their intervals."""
    rows = []
    for result in results:
        errors = total_errors(result.utterances)
        for name, measure in result.measures().items():
            summary = measure_summary(measure)
            counts = (errors.substitutions, errors.deletions, errors.insertions) if name == "all" else ("", "", "")
            rows.append(
                [
                    f"{result.part}, {measure_name(name)}",
                    percent(summary["rate"]),
                    f"{percent(summary['low'])} to {percent(summary['high'])}",
                    *map(str, counts),
                    str(summary["words"]),
                ]
            )
    columns = ["", "WER %", "95 % interval", "sub", "del", "ins", "words"]
    return Table(f"Word error rates of {results[0].system}", columns, rows)


def comparison_row(name: str, difference: Difference, decimals: int = 2) -> list[str]:
    """Both values, the change with its interval, the relative change and the p-value."""
    return [
        name,
        f"{difference.first:.{decimals}f}",
        f"{difference.second:.{decimals}f}",
        signed(difference.change.value, decimals),
        f"{signed(difference.change.low, decimals)} to {signed(difference.change.high, decimals)}",
        f"{signed(difference.relative, 1)} %",
        p_text(difference.p_value),
    ]


def comparison_table(title: str, differences: Mapping[str, Mapping[str, Difference]], names: tuple[str, str]) -> Table:
    """Paired tests by test set and measure."""
    rows = [
        comparison_row(f"{part}, {measure_name(name)}", difference)
        for part, measures in differences.items()
        for name, difference in measures.items()
    ]
    columns = ["WER %", *names, "change", "95 % interval", "relative", "p"]
    return Table(title, columns, rows, ["Paired bootstrap over utterances; a change below 0 is an improvement."])


def latency_table(latencies: Sequence[Latency]) -> Table:
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


def difference_table(title: str, differences: Mapping[str, LatencyDifference], names: tuple[str, str]) -> Table:
    """How two systems differ, by test set and group of tokens."""
    rows = []
    for part, difference in differences.items():
        for name, change in difference.emission.items():
            label = "all tokens" if name == "all" else f"tokens of {measure_name(name)}"
            rows.append([f"{part}, {label}", *cells(change)])
        for label, times in (("word first shown", difference.shown), ("word last changed", difference.settled)):
            if times is not None:
                rows.append([f"{part}, {label}", *cells(times)])
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
