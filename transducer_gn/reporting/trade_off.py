"""Errors against delay: every run with chunks of several sizes, as a table and as curves.

One point per system is no fair comparison of delays, since a system may have fewer errors for being later. Curves are:
what one system reaches at a delay, the other reaches or does not.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes

from transducer_gn.evaluation.bootstrap import Interval, ratio_interval
from transducer_gn.evaluation.latency import UtteranceTimes
from transducer_gn.evaluation.latency_results import Latency, mean_emission
from transducer_gn.evaluation.results import Results
from transducer_gn.evaluation.stability_results import is_aligned, summarise, was_live
from transducer_gn.evaluation.sweeps import CHUNKS, Point
from transducer_gn.reporting.figure import COLOURS, STYLE, ReportFigure, new_figure
from transducer_gn.reporting.runs import Run, attempt
from transducer_gn.reporting.stability_tables import ends_note
from transducer_gn.reporting.system_tables import measure_name
from transducer_gn.reporting.table import Table

# Of a live text: how late, and how unsteady; with their names in the table and their decimals.
DELAY = "settled_p50_ms"
LIVE = {
    DELAY: ("last changed, p50, ms", 0),
    "settled_p90_ms": ("p90", 0),
    "revisions_per_word": ("revisions/word", 3),
}
MARKERS = "os^vD"
NOTE = (
    "Emission: expected over all alignments of the reference, from the beginning of the utterance. The wait for the "
    "rest of a chunk is not in it, and only differences say much. It is in when a word last changed."
)


@dataclass(frozen=True)
class Operated:
    """A run with chunks of one size.

    Attributes:
        run: its name
        folder: that its folder is in
        chunk: milliseconds of a chunk, and of what is heard after it
        errors: error rates in per cent by name: all words, and what the corpus counts apart
        emission: mean expected emission times in ms of the tokens of the same names; empty where not measured
        live: by the names of `LIVE`; empty where not measured
    """

    run: str
    folder: str
    chunk: str
    errors: dict[str, Interval]
    emission: dict[str, Interval]
    live: dict[str, Interval]

    def place(self, name: str, over: str) -> tuple[float, float] | None:
        """A delay and an error rate; None unless both were measured.

        Args:
            name: of the error rate
            over: of the delay in `live`, or "" for the emission time of the same words
        """
        both = self.live.get(over) if over else self.emission.get(name), self.errors.get(name)
        values = [value.value for value in both if value is not None and not math.isnan(value.value)]
        return (values[0], values[1]) if len(values) == len(both) else None


@dataclass(frozen=True)
class TradeOff:
    """What was measured of all runs with chunks of several sizes.

    Attributes:
        points: run by run
        notes: where the ends of words come from, and what is missing or not as it should be
    """

    points: list[Operated] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def curves(self, name: str, over: str) -> dict[str, list[tuple[tuple[float, float], str]]]:
        """Of each run, where its points are and their chunks, from left to right; see `Operated.place`."""
        found: dict[str, list[tuple[tuple[float, float], str]]] = {}
        for point in self.points:
            if (place := point.place(name, over)) is not None:
                found.setdefault(point.run, []).append((place, point.chunk))
        return {run: sorted(curve) for run, curve in found.items()}

    def values(self) -> list[dict[str, Any]]:
        """The points, for programs."""
        return [asdict(point) for point in self.points]


def find_trade_off(roots: Sequence[Sequence[Run]], part: str, baseline: Run | None) -> TradeOff:
    """What was measured on a set.

    Args:
        roots: the runs of a folder, and those of folders whose systems were trained for other chunks: runs of the same
            name are one curve
        baseline: what aligns references where the corpus does not
    """
    found = TradeOff()
    nothing: list[Point] = []
    aligner = aligned_utterances(baseline, part)
    for run in (run for runs in roots for run in runs):
        measured = attempt(partial(CHUNKS.find, run.folder, part), nothing, found.notes)
        found.points.extend(operated(run, point, aligner) for point in measured)
        if len({str(point.results.identity.get("parameters")) for point in measured}) > 1:
            found.notes.append(f"{run.folder}: chunks were measured with different parameters; measure all again")
        for latency in (point.latency for point in measured):
            if latency is not None and was_live(latency.utterances):
                note = ends_note(latency, baseline.name if baseline is not None else "a baseline")
                if not can_align(latency, aligner):
                    note = (
                        f"{run.folder}: no delays, since the baseline, which aligns, was measured on other utterances"
                    )
                found.notes.extend([note] if note not in found.notes else [])
    return found


def operated(run: Run, point: Point, aligner: Mapping[str, UtteranceTimes]) -> Operated:
    """A point of a run; for the aligner see `live_measures`."""
    latency = point.latency
    return Operated(
        run.name,
        str(run.folder.parent),
        chunk_text(run, point.number),
        error_rates(run, point.results),
        {} if latency is None else emission_times(run, latency),
        {} if latency is None else live_measures(latency, aligner),
    )


def aligned_utterances(baseline: Run | None, part: str) -> dict[str, UtteranceTimes]:
    """By id, the utterances that were measured of the baseline, with its own chunks or others."""
    if baseline is None:
        return {}
    nothing: list[Point] = []
    points = attempt(partial(CHUNKS.find, baseline.folder, part), nothing, [])
    own = [baseline.latencies.get(part), *(point.latency for point in points)]
    return {utterance.id: utterance for latency in reversed(own) if latency is not None
            for utterance in latency.utterances}  # fmt: skip


def chunk_text(run: Run, frames: int) -> str:
    """Milliseconds of a chunk, and of what is heard after it."""
    if run.config is None:
        return f"{frames} frames"
    framing = run.config.model.front_end.framing
    right = f" + {1000 * framing.right_seconds:.0f}" if framing.right else ""
    return f"{1000 * framing.frame_shift * frames:.0f}{right} ms"


def error_rates(run: Run, results: Results) -> dict[str, Interval]:
    """Error rates in per cent by name: all words, and what the corpus counts apart."""
    measures = results.measures() | run.extras.measures(results.utterances)
    chosen = [name for name in ("all", *run.extras.key_tokens) if name in measures]
    return {name: ratio_interval(measures[name].errors, measures[name].words).scaled(100) for name in chosen}


def emission_times(run: Run, latency: Latency) -> dict[str, Interval]:
    """Mean expected emission times in milliseconds, of the tokens of the same names."""
    choices = run.extras.token_choices(latency.utterances)
    return {"all": mean_emission(latency)} | {name: mean_emission(latency, mask) for name, mask in choices.items()}


def live_measures(latency: Latency, aligner: Mapping[str, UtteranceTimes]) -> dict[str, Interval]:
    """How late and how unsteady a live text is, by the names of `LIVE`; empty where that cannot be said.

    Args:
        latency: of one point
        aligner: utterances by id, under the system that aligns them where the corpus does not
    """
    if not was_live(latency.utterances) or not can_align(latency, aligner):
        return {}
    aligned = [aligner.get(utterance.id, utterance) for utterance in latency.utterances]
    return summarise(latency.utterances, aligned, names=LIVE)


def can_align(latency: Latency, aligner: Mapping[str, UtteranceTimes]) -> bool:
    """Whether the ends of all words are known, from the corpus or from the system that aligns."""
    return is_aligned(latency.utterances) or all(utterance.id in aligner for utterance in latency.utterances)


def trade_off_table(trade_off: TradeOff, part: str) -> Table | None:
    """All points; None if there are none."""
    points = trade_off.points
    if not points:
        return None
    rates, times = names_of(point.errors for point in points), timed_names(trade_off)
    several = len({point.folder for point in points}) > 1
    rows = [
        [
            point.run,
            *([point.folder] if several else []),
            point.chunk,
            *(cell(point.errors.get(name), 2) for name in rates),
            *(cell(point.emission.get(name), 1) for name in times),
            *(cell(point.live.get(name), decimals) for name, (_, decimals) in LIVE.items()),
        ]
        for point in points
    ]
    columns = ["run", *(["folder"] if several else []), "chunk"]
    columns += [f"{measure_name(name)}, %" for name in rates]
    columns += ["emission, ms" if name == "all" else f"emission, {name}" for name in times]
    columns += [label for label, _ in LIVE.values()]
    return Table(f"Errors against delay on {part}", columns, rows, [NOTE, *trade_off.notes])


def names_of(found: Iterable[Mapping[str, Interval]]) -> list[str]:
    """All names, in order."""
    return list(dict.fromkeys(name for values in found for name in values))


def timed_names(trade_off: TradeOff) -> list[str]:
    """Names of the error rates of whose words emission times were measured, too."""
    return [name for name in names_of(point.errors for point in trade_off.points) if trade_off.curves(name, "")]


def cell(value: Interval | None, decimals: int) -> str:
    """A value with its interval as text; a dash for none."""
    if value is None or math.isnan(value.value):
        return "–"
    return " ".join([f"{value.value:.{decimals}f}", f"({value.low:.{decimals}f} to {value.high:.{decimals}f})"])


@rc_context(STYLE)
def trade_off_figures(trade_off: TradeOff) -> list[ReportFigure]:
    """Error rates over emission times, and over the delay of live words, as far as these were measured."""
    found = []
    if timed := timed_names(trade_off):
        caption = (
            "Errors against the mean expected emission time of the same words, each system with chunks of several "
            "sizes. The wait for the rest of a chunk is not in it: what is seen is how long a system waits by itself."
        )
        found.append(curves_figure(trade_off, "errors-by-emission", [(name, "") for name in timed], caption))
    if trade_off.curves("all", DELAY):
        caption = (
            "Errors against the time after which half of the right words of live text have changed for the last time, "
            "each system with chunks of several sizes."
        )
        found.append(curves_figure(trade_off, "errors-by-delay", [("all", DELAY)], caption))
    return found


def curves_figure(trade_off: TradeOff, title: str, panels: Sequence[tuple[str, str]], caption: str) -> ReportFigure:
    """A panel for each error rate and delay, in which every system is a line.

    Args:
        panels: names for `TradeOff.curves`
    """
    figure, axes = new_figure(len(panels), 0.5 + 2.9 * len(panels), share=False)
    for axis, (name, over) in zip(axes, panels, strict=True):
        for index, (run, curve) in enumerate(trade_off.curves(name, over).items()):
            draw_curve(axis, run, curve, index)
        axis.set_xlabel("word last changed after its end, p50, ms" if over else "mean emission time, ms")
        axis.set_ylabel(f"{measure_name(name)}, %")
        axis.set_ylim(bottom=0)
        axis.ticklabel_format(axis="x", useOffset=False)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    return ReportFigure(title, figure, caption)


def draw_curve(axis: Axes, run: str, points: Sequence[tuple[tuple[float, float], str]], index: int) -> None:
    """One system's points, each with its chunk beside it, joined from left to right."""
    colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
    axis.plot([x for (x, _), _ in points], [y for (_, y), _ in points], color=colour, marker=marker, label=run)
    for place, chunk in points:
        axis.annotate(chunk, place, textcoords="offset points", xytext=(4, 4), fontsize=7, color=colour)
