"""The tables of a report on many runs: the paper's, and local against global by group of utterances."""

import math
import re
from collections.abc import Sequence

from transducer_gn.common.durations import rough_duration
from transducer_gn.evaluation.latency_results import LatencyDifference, mean_emission
from transducer_gn.evaluation.results import measure_summary
from transducer_gn.reporting.comparisons import (
    different_settings,
    error_differences,
    gap_closed,
    latency_difference,
)
from transducer_gn.reporting.published import PAPER_HOURS_PER_EPOCH, PAPER_SYSTEMS, PUBLIC_SYSTEMS
from transducer_gn.reporting.runs import Run, decoded_sets, headline_set, normalisation_text
from transducer_gn.reporting.stability_tables import ends_note, stability_rows
from transducer_gn.reporting.system_tables import comparison_row, measure_name
from transducer_gn.reporting.table import Table, percent


def is_librispeech(runs: Sequence[Run]) -> bool:
    """Whether published results can be compared with these."""
    return "test-clean" in decoded_sets(runs)


def order(run: Run) -> tuple[bool, bool, bool, float, int, int]:
    """Finite-state systems, then local ones, then global ones by falling alpha."""
    alpha = -1.0 if math.isnan(run.alpha) else run.alpha
    return (not run.is_finite_state, run.is_lookahead, not run.is_local, -alpha, run.branch_epoch, run.competitors or 0)


def key_table(baseline: Run, challenger: Run, part: str, lookahead: Run | None = None) -> Table:
    """Local against global on one set: error rates by group with paired tests, and emission times."""
    differences = error_differences(baseline, challenger, part)
    rows = [comparison_row(measure_name(name), difference) for name, difference in differences.items()]
    notes = ["Error rates in %. Paired bootstrap over utterances; a change below 0 is an improvement."]
    notes += different_settings(baseline.results[part], challenger.results[part])
    latency = latency_difference(baseline, challenger, part)
    if latency is not None:
        rows += latency_rows(latency, baseline.extras.key_tokens)
        notes.append(
            "Emission: expected time over all alignments of the reference. Shown, changed: by the live recogniser, "
            "words that both get right. Below 0 is earlier."
        )
        if latency.stability:
            notes.append(ends_note(baseline.latencies[part], baseline.name))
    notes += baseline.extras.key_notes(differences)
    if lookahead is not None and (closed := gap_closed(baseline, challenger, lookahead, part)) is not None:
        rate = lookahead.results[part].measures()["all"].rate
        notes.append(
            f"Of the gap to {lookahead.name}, which hears whole utterances before it decides ({percent(rate)} %), "
            f"{challenger.name} closes {closed.value:.0f} % ({closed.low:.0f} to {closed.high:.0f})."
        )
    columns = ["", baseline.name, challenger.name, "change", "95 % interval", "relative", "p"]
    return Table(f"Local against global on {part}", columns, rows, notes)


def latency_rows(latency: LatencyDifference, chosen: Sequence[str]) -> list[list[str]]:
    """Emission times of all tokens and of those `chosen` by name, as rows of the same columns."""
    named = [
        ("emission, all tokens", latency.emission.get("all")),
        *((f"emission, {name}", latency.emission.get(name)) for name in chosen),
        ("word first shown", latency.shown),
        ("word last changed", latency.settled),
    ]
    rows = [comparison_row(f"{name}, ms", difference, 1) for name, difference in named if difference is not None]
    return rows + stability_rows(latency.stability)


def results_table(runs: Sequence[Run], baseline: Run | None) -> Table:
    """The paper's main table: error rates by set, and the change of the emission time to the baseline."""
    sets, headline = decoded_sets(runs), headline_set(runs)
    rows = []
    for run in sorted((run for run in runs if run.results), key=order):
        rates = [percent(run.results[part].measures()["all"].rate) if part in run.results else "–" for part in sets]
        rows.append(
            [run.name, normalisation_text(run), branch_text(run), *rates, latency_cell(run, baseline, headline)]
        )
    notes = [parameters_note([run for run in runs if run.results])]
    notes += [note for run in runs for note in alpha_notes(run)]
    if baseline is not None:
        notes.append(f"Emission: change of the mean emission time on {headline} against {baseline.name}, in ms.")
    if is_librispeech(runs):
        rows.append([])
        for system in PAPER_SYSTEMS:
            rates = [percent(system.rates.get(part, math.nan)) for part in sets]
            latency = "–" if system.latency is None else f"{system.latency:+d}".replace("+0", "0")
            rows.append(
                [system.name, system.normalisation, "10" if "N 10" in system.normalisation else "–", *rates, latency]
            )
    return Table(
        "Word error rate (%) and emission time",
        ["run", "normalisation", "branched after", *sets, "emission"],
        rows,
        notes,
    )


def parameters_note(runs: Sequence[Run]) -> str:
    """Which parameters the systems were decoded with."""
    named: dict[str, list[str]] = {}
    for run in sorted(runs, key=order):
        for text in dict.fromkeys(parameters_text(run, results.system) for results in run.results.values()):
            named.setdefault(text, []).append(run.name)
    if len(named) == 1:
        return f"Each system at {next(iter(named))}."
    return "; ".join(f"{', '.join(names)} at {text}" for text, names in named.items()) + "."


def parameters_text(run: Run, system: str) -> str:
    """The same of one run, from what its results were recognised with, such as "epoch-6-avg-1-lookahead-greedy"."""
    found = re.match(r"epoch-(\d+)(?:-avg-(\d+))?(?=-|$)", system)
    if found is None:
        return f"what {system} names"
    epoch, average = int(found[1]), found[2]
    is_last = run.best is not None and epoch == run.best["last_epoch"]
    if average is None and run.best is not None and epoch == run.best["epoch"]:
        if run.best["wer"] is not None:
            return "its epoch of lowest error rate on the dev set"
        if is_last:
            return "its last epoch, for want of a dev set"
    text = "its last epoch" if is_last else f"epoch {epoch}"
    return text if average is None else f"{text}, parameters averaged over {average} epoch{'s' * (average != '1')}"


def alpha_notes(run: Run) -> list[str]:
    """Says so where a run was decoded at an alpha that is not the one it moves to."""
    used = sorted({results.identity.get("alpha", run.alpha) for results in run.results.values()})
    return [f"{run.name} is decoded at alpha {alpha:g}, not {run.alpha:g}." for alpha in used if alpha != run.alpha]


def branch_text(run: Run) -> str:
    """The epoch that a run branched off after."""
    return str(run.branch_epoch) if run.branch_epoch else "–"


def latency_cell(run: Run, baseline: Run | None, part: str | None) -> str:
    """Change of the mean emission time with its interval."""
    difference = latency_difference(baseline, run, part) if baseline is not None and part is not None else None
    if difference is None:
        return "–"
    if run is baseline:
        return "0"
    change = difference.emission["all"].change
    return f"{change.value:+.0f} ({change.low:+.0f} to {change.high:+.0f})"


def groups_table(runs: Sequence[Run], part: str) -> Table | None:
    """Error rates by group of utterances on one set, with intervals; None if there is only one group."""
    rows: list[list[str]] = []
    columns: list[str] = []
    for run in sorted((run for run in runs if part in run.results), key=order):
        measures = run.measures(part)
        columns = columns or [name for name in measures if name != "all"]
        summaries = [measure_summary(measures[name]) if name in measures else None for name in columns]
        cells = [f"{s['rate']:.1f} ({s['low']:.1f} to {s['high']:.1f})" if s else "–" for s in summaries]
        rows.append([run.name, *cells])
    if not columns:
        return None
    names = [measure_name(name) for name in columns]
    notes = [f"With 95 % intervals. {runs[0].extras.measures_note}".rstrip()]
    return Table(f"Error rates (%) by kind on {part}", ["run", *names], rows, notes)


def time_table(runs: Sequence[Run], baseline: Run | None) -> Table:
    """Time of one epoch by number of competitors, over that of the baseline, or else of the first local run."""
    timed = [run for run in sorted(runs, key=order) if not math.isnan(run.seconds_per_epoch())]
    local = [run for run in timed if run.is_local and run.is_plain and not run.is_mwer]
    reference = baseline if baseline in local else next(iter(local), None)
    rows = []
    for run in timed:
        seconds = run.seconds_per_epoch()
        ratio = f"{seconds / reference.seconds_per_epoch():.1f}" if reference and run.is_plain else "–"
        rows.append(
            [run.name, "–" if run.competitors is None else str(run.competitors), rough_duration(seconds), ratio]
        )
    notes = [
        "Time of updates without loading data; of global runs, only since alpha has left 1. Comparable as far as runs "
        "had the machine alike."
    ]
    if is_librispeech(runs):
        rows.append([])
        for count, hours in PAPER_HOURS_PER_EPOCH.items():
            name, ratio = "paper, 8 V100", f"{hours / PAPER_HOURS_PER_EPOCH[0]:.1f}"
            rows.append([name, str(count) if count else "–", rough_duration(3600 * hours), ratio])
    over = f"over {reference.name}" if reference else "ratio"
    return Table("Time of one epoch", ["run", "competitors", "time", over], rows, notes)


def runs_table(runs: Sequence[Run]) -> Table:
    """What was run, how far it is, and what is wrong."""
    rows, notes = [], []
    for run in sorted(runs, key=order):
        total = f"{run.epochs:.4g} of {run.config.training.epochs}" if run.config else f"{run.epochs:.4g}"
        best = f"{run.best['epoch']}" if run.best else "–"
        wer = percent(run.best["wer"]) if run.best and run.best["wer"] is not None else "–"
        rows.append([run.name, normalisation_text(run), branch_text(run), total, str(run.step), best, wer])
        notes += [f"{run.name}: {problem}." for problem in run.problems]
    columns = ["run", "normalisation", "branched after", "epochs", "updates", "best epoch", "dev WER %"]
    return Table("Runs", columns, rows, notes)


def public_table() -> Table:
    """Public streaming results on LibriSpeech."""
    rows = [[s.name, s.chunk, s.greedy, s.beam, s.source] for s in PUBLIC_SYSTEMS]
    notes = [
        "test-clean / test-other, 960 h, no language model. Encoders differ; global normalisation can go with any."
    ]
    return Table(
        "Public streaming systems on LibriSpeech, WER %", ["system", "chunk", "greedy", "beam", "source"], rows, notes
    )


def emission_means(run: Run) -> dict[str, float]:
    """Mean emission time in ms by set."""
    return {part: mean_emission(latency).value for part, latency in run.latencies.items()}
