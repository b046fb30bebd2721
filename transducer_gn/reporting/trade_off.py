"""Errors against delay: every run with chunks of several sizes, as a table and as curves.

One point per system is no fair comparison of delays, since a system may have fewer errors for being later. Curves are:
what one system reaches at a delay, the other reaches or does not.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib import rc_context
from matplotlib.axes import Axes

from transducer_gn.evaluation.bootstrap import Interval, ratio_interval
from transducer_gn.evaluation.latency_results import Latency, mean_emission
from transducer_gn.evaluation.results import Results
from transducer_gn.evaluation.stability_results import summarise, was_live
from transducer_gn.evaluation.sweeps import CHUNKS, Point
from transducer_gn.reporting.figure import COLOURS, STYLE, ReportFigure, new_figure
from transducer_gn.reporting.runs import Run, attempt
from transducer_gn.reporting.stability_tables import aligner_of, ends_note
from transducer_gn.reporting.system_tables import measure_name
from transducer_gn.reporting.table import Table

# Of a live text: how late, and how unsteady; with their decimals.
LIVE = {"settled_p50_ms": 0, "settled_p90_ms": 0, "revisions_per_word": 3}
DELAY = "settled_p50_ms"
MARKERS = "os^vD"
NOTE = (
    "Emission: expected over all alignments of the reference, from the beginning of the utterance; only differences "
    "say much. Last changed: ms after the true ends of words."
)


@dataclass(frozen=True)
class Operated:
    """A run with chunks of one size.

    Attributes:
        chunk: milliseconds of a chunk, and of what is heard after it
        errors: error rates in per cent by name: all words, and what the corpus counts apart
        emission: mean expected emission times in ms of the tokens of the same names; empty where not measured
        live: by the names of `LIVE`; empty where not measured
    """

    chunk: str
    errors: dict[str, Interval]
    emission: dict[str, Interval]
    live: dict[str, Interval]

    def values(self, name: str, over: str) -> tuple[float, float] | None:
        """A delay and an error rate; None unless both were measured.

        Args:
            name: of the error rate
            over: of the delay in `live`, or "" for the emission time of the same words
        """
        delay = self.live.get(over) if over else self.emission.get(name)
        return (delay.value, self.errors[name].value) if delay is not None and name in self.errors else None


# By the run's name.
Curves = Mapping[str, Sequence[Operated]]


def find_curves(roots: Sequence[Sequence[Run]], part: str, baseline: Latency | None) -> Curves:
    """What was measured of each run with chunks of several sizes.

    Args:
        roots: the runs of a folder, and those of folders whose systems were trained for other chunks: runs of the same
            name are one curve
        baseline: what aligns references where the corpus does not
    """
    curves: dict[str, list[Operated]] = {}
    nothing: list[Point] = []
    for run in (run for runs in roots for run in runs):
        for point in attempt(partial(CHUNKS.find, run.folder, part), nothing, run.problems):
            latency = point.latency
            curves.setdefault(run.name, []).append(
                Operated(
                    chunk_text(run, point.number),
                    error_rates(run, point.results),
                    {} if latency is None else emission_times(run, latency),
                    {} if latency is None else live_measures(latency, baseline),
                )
            )
    return curves


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


def live_measures(latency: Latency, baseline: Latency | None) -> dict[str, Interval]:
    """How late and how unsteady a live text is, by the names of `LIVE`; empty where that was not measured."""
    if not was_live(latency.utterances):
        return {}
    found = summarise(latency.utterances, aligner_of(latency, baseline).utterances)
    return {name: found[name] for name in LIVE}


def trade_off_table(curves: Curves, part: str, baseline: Run | None) -> Table | None:
    """All points; None if there are none."""
    points = [(name, point) for name, curve in curves.items() for point in curve]
    if not points:
        return None
    rates = names_of(point.errors for _, point in points)
    times = [name for name in rates if any(name in point.emission for _, point in points)]
    rows = [
        [
            run,
            point.chunk,
            *(rate_cell(point.errors.get(name)) for name in rates),
            *(cell(point.emission.get(name), 1) for name in times),
            *(cell(point.live.get(name), decimals) for name, decimals in LIVE.items()),
        ]
        for run, point in points
    ]
    columns = ["run", "chunk"]
    columns += [f"{measure_name(name)}, %" for name in rates]
    columns += ["emission, ms" if name == "all" else f"emission, {name}" for name in times]
    columns += ["last changed, p50", "p90", "revisions/word"]
    aligning = baseline.latencies.get(part) if baseline is not None else None
    notes = [NOTE] if baseline is None or aligning is None else [NOTE, ends_note(aligning, baseline.name)]
    return Table(f"Errors against delay on {part}", columns, rows, notes)


def names_of(found: Iterable[Mapping[str, Interval]]) -> list[str]:
    """All names, in order."""
    return list(dict.fromkeys(name for values in found for name in values))


def cell(value: Interval | None, decimals: int) -> str:
    """A value as text; a dash for none."""
    return "–" if value is None or value.value != value.value else f"{value.value:.{decimals}f}"


def rate_cell(rate: Interval | None) -> str:
    """An error rate with its interval."""
    return "–" if rate is None else f"{rate.value:.2f} ({rate.low:.2f} to {rate.high:.2f})"


@rc_context(STYLE)
def trade_off_figures(curves: Curves) -> list[ReportFigure]:
    """Error rates over emission times, and over the delay of live words, as far as these were measured."""
    points = [point for curve in curves.values() for point in curve]
    timed = [name for name in names_of(p.errors for p in points) if any(p.values(name, "") for p in points)]
    found = []
    if timed:
        found.append(
            curves_figure(
                curves,
                "errors-by-emission",
                [(name, "") for name in timed],
                "Errors against the mean expected emission time of the same words, each system with chunks of several "
                "sizes.",
            )
        )
    if any(point.values("all", DELAY) for point in points):
        found.append(
            curves_figure(
                curves,
                "errors-by-delay",
                [("all", DELAY)],
                "Errors against the time after which half of the right words of live text have changed for the last "
                "time, each system with chunks of several sizes.",
            )
        )
    return found


def curves_figure(curves: Curves, title: str, panels: Sequence[tuple[str, str]], caption: str) -> ReportFigure:
    """A panel for each error rate and delay, in which every system is a line.

    Args:
        panels: names for `Operated.values`
    """
    figure, axes = new_figure(len(panels), 0.5 + 2.9 * len(panels), share=False)
    for axis, (name, over) in zip(axes, panels, strict=True):
        for index, (run, curve) in enumerate(curves.items()):
            known = [(found, point.chunk) for point in curve if (found := point.values(name, over)) is not None]
            draw_curve(axis, run, sorted(known), index)
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
