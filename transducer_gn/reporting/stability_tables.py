"""Tables of how steady and how quick live texts are: of one system, of two compared, of all runs, by what is shown."""

from collections.abc import Mapping, Sequence

from transducer_gn.config import SHOW_ALL, DisplayConfig
from transducer_gn.evaluation.bootstrap import Difference, Interval
from transducer_gn.evaluation.latency_results import Latency
from transducer_gn.evaluation.stability_results import is_aligned, summarise, was_live
from transducer_gn.reporting.runs import Run
from transducer_gn.reporting.system_tables import comparison_row
from transducer_gn.reporting.table import Table

# What measures are called, and their decimals.
LABELS = {
    "unstable_partial_word_ratio": ("unstable partial word ratio", 3),
    "normalised_erasure": ("normalised erasure", 3),
    "revisions_per_word": ("revisions per word", 3),
    "words_back": ("words back per revision", 2),
    "seconds_back": ("seconds back per revision", 2),
    "shown_p50_ms": ("word first shown after its end, p50, ms", 0),
    "shown_p90_ms": ("word first shown after its end, p90, ms", 0),
    "settled_p50_ms": ("word last changed after its end, p50, ms", 0),
    "settled_p90_ms": ("word last changed after its end, p90, ms", 0),
    "final_p50_ms": ("final text after the end of the audio, p50, ms", 0),
    "final_p90_ms": ("final text after the end of the audio, p90, ms", 0),
}
# Those of tables in which every measure is a column.
COLUMNS = {
    "unstable_partial_word_ratio": "UPWR",
    "normalised_erasure": "erasure",
    "revisions_per_word": "revisions/word",
    "seconds_back": "s back",
    "shown_p50_ms": "shown p50",
    "shown_p90_ms": "p90",
    "settled_p50_ms": "last changed p50",
    "settled_p90_ms": "p90 ",
}


def ends_note(latency: Latency, aligner: str) -> str:
    """Where the true ends of words come from."""
    if is_aligned(latency.utterances):
        return "Ends of words are those of the corpus's alignments; words are those that are right in the end."
    return (
        f"The corpus has no alignments: a word ends where {aligner} expects its last token, over all alignments of the "
        "reference. Words are those that are right in the end."
    )


def aligner_of(latency: Latency, baseline: Latency | None) -> Latency:
    """What aligns references where the corpus does not: the baseline, or if it cannot, the system itself."""
    if baseline is None or [u.id for u in baseline.utterances] != [u.id for u in latency.utterances]:
        return latency
    return baseline


def stability_table(latencies: Sequence[Latency], baselines: Sequence[Latency], aligner: str) -> Table | None:
    """All measures of one system by test set, with intervals; None if it was not run live.

    Args:
        latencies: of each test set
        baselines: of the system that aligns references where the corpus does not; empty for the system itself
        aligner: what the table calls it
    """
    rows, notes = [], []
    for number, latency in enumerate(latencies):
        if not was_live(latency.utterances):
            continue
        aligning = aligner_of(latency, baselines[number] if baselines else None)
        for name, value in summarise(latency.utterances, aligning.utterances).items():
            rows.append([f"{latency.part}, {LABELS[name][0]}", *interval_cells(value, LABELS[name][1])])
        notes = [ends_note(latency, aligner)]
    notes.append("The final text takes what computing the last chunks of a batch took on this machine.")
    return Table(f"Live text of {latencies[0].system}", ["", "value", "95 % interval"], rows, notes) if rows else None


def interval_cells(value: Interval, decimals: int) -> list[str]:
    """A value and its interval as text."""
    if value.value != value.value:
        return ["–", "–"]
    return [f"{value.value:.{decimals}f}", f"{value.low:.{decimals}f} to {value.high:.{decimals}f}"]


def displays(holds: Sequence[int]) -> list[DisplayConfig]:
    """What the table of prices is about: all text, text held for so many milliseconds, and stable text alone."""
    return [SHOW_ALL, *(DisplayConfig(hold_ms=hold) for hold in holds), DisplayConfig(show="stable")]


def display_measures(latency: Latency, aligning: Latency, holds: Sequence[int]) -> dict[str, dict[str, Interval]]:
    """All measures by what is shown."""
    return {
        display.describe(): summarise(latency.utterances, aligning.utterances, display) for display in displays(holds)
    }


def price_table(part: str, measures: Mapping[str, Mapping[str, Interval]]) -> Table:
    """What it costs in delay to show only what is steadier, from `display_measures`."""
    rows = [[shown, *column_cells(values)] for shown, values in measures.items()]
    notes = ["Delays are in ms after the true ends of words. The final text is always shown."]
    return Table(f"{part}: what a steadier text costs", ["what is shown", *COLUMNS.values()], rows, notes)


def column_cells(values: Mapping[str, Interval]) -> list[str]:
    """The measures that have columns, without intervals."""
    return [interval_cells(values[name], LABELS[name][1])[0] for name in COLUMNS]


def runs_stability_table(runs: Sequence[Run], baseline: Run | None, part: str) -> Table | None:
    """One row for each run that was run live on a set; None if there is none."""
    live = [run for run in runs if part in run.latencies and was_live(run.latencies[part].utterances)]
    if not live:
        return None
    aligning = baseline.latencies.get(part) if baseline is not None else None
    rows = []
    for run in live:
        latency = run.latencies[part]
        rows.append([run.name, *column_cells(summarise(latency.utterances, aligner_of(latency, aligning).utterances))])
    name = baseline.name if baseline is not None and aligning is not None else "each system itself"
    notes = [ends_note(live[0].latencies[part], name), "UPWR, erasure: see docs/recognition.md. Delays in ms."]
    return Table(f"Steadiness and delay of live text on {part}", ["run", *COLUMNS.values()], rows, notes)


def stability_rows(differences: Mapping[str, Difference]) -> list[list[str]]:
    """Two systems compared, as rows of the same columns as error rates."""
    return [comparison_row(LABELS[name][0], change, LABELS[name][1]) for name, change in differences.items()]
