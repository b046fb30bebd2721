"""What a report shows of ambiguous words by distance: a table of all systems, and a figure over training."""

from collections.abc import Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes

from transducer_gn.evaluation.bootstrap import Interval
from transducer_gn.evaluation.sweeps import EPOCHS, Point
from transducer_gn.reporting.extras import Evaluated
from transducer_gn.reporting.figure import COLOURS, STYLE, ReportFigure, new_figure
from transducer_gn.reporting.table import Table
from transducer_gn.synthetic.distances import FEW, AtDistance, Delays, by_distance

COLUMNS = (
    "run",
    "distance",
    "words",
    "errors %",
    "emission, ms",
    "all tokens, ms",
    "shown, p50",
    "p90",
    "last changed, p50",
    "p90",
)
NOTES = (
    "Distance: words between an ambiguous word and the one that settles it. Errors are on the ambiguous words.",
    "Emission, shown, last changed: of the ambiguous words, in ms after the end of their sound; emission is expected "
    "over all alignments of the reference, the others are by the live recogniser, of words that are right in the end.",
    "All tokens: mean emission time in these sentences, from their beginning; only differences say much.",
)
DASHES = ("-", "--", ":")


def distance_table(systems: Sequence[Evaluated]) -> Table | None:
    """All systems, distance by distance; None where there are no ambiguous words."""
    rows: list[list[str]] = []
    for system in systems:
        found = by_distance(system.results, system.latency)
        rows += [[system.name, *cells(one)] for one in found]
    part = systems[0].results.part if systems else ""
    return Table(f"Ambiguous words by distance on {part}", COLUMNS, rows, NOTES) if rows else None


def cells(found: AtDistance) -> list[str]:
    """The measures of one distance as text."""
    return [
        "all" if found.distance is None else str(found.distance),
        str(found.words),
        interval(found.errors, 1),
        interval(found.emission),
        interval(found.all_tokens),
        *both(found.shown),
        *both(found.settled),
    ]


def interval(value: Interval, decimals: int = 0) -> str:
    """A value with its interval; a dash for none."""
    if value.value != value.value:
        return "–"
    return f"{value.value:.{decimals}f} ({value.low:.{decimals}f} to {value.high:.{decimals}f})"


def both(delays: Delays) -> list[str]:
    """Median and ninth decile; dashes for none."""
    return ["–" if value != value else f"{value:.0f}" for value in (delays.median, delays.late)]


@rc_context(STYLE)
def training_figure(systems: Sequence[Evaluated]) -> ReportFigure | None:
    """Errors and times of ambiguous words epoch by epoch; None where no system was measured at more than one."""
    curves = {system.name: EPOCHS.find(system.folder, system.results.part) for system in systems}
    curves = {name: epochs for name, epochs in curves.items() if any(by_distance(e.results, None) for e in epochs)}
    if not any(len(epochs) > 1 for epochs in curves.values()):
        return None
    figure, axes = new_figure(3, 7.2)
    for (name, epochs), colour in zip(curves.items(), COLOURS * len(curves), strict=False):
        draw_run(axes, name, epochs, colour)
    for axis, label in zip(axes, ("errors, %", "emission, ms", "shown, p50, ms"), strict=True):
        axis.set_ylabel(label)
    axes[0].set_ylim(bottom=0)
    axes[-1].set_xlabel("epoch")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    caption = (
        "Ambiguous words over training: errors on them, their expected emission after the end of their sound, and when "
        "half of those that are right in the end have been shown. A system that learns to wait has fewer errors and "
        "later words."
    )
    return ReportFigure("ambiguous-over-training", figure, caption)


def draw_run(axes: Sequence[Axes], name: str, epochs: Sequence[Point], colour: str) -> None:
    """The lines of one run: one for each distance where these are few, or else one for all."""
    measured = [(epoch.number, by_distance(epoch.results, epoch.latency)) for epoch in epochs]
    distances = list(dict.fromkeys(one.distance for _, found in measured for one in found))
    several = [distance for distance in distances if distance is not None]
    chosen = several if len(several) <= FEW else [None]
    for distance, dash in zip(chosen, DASHES, strict=False):
        points = [(epoch, one) for epoch, found in measured for one in found if one.distance == distance]
        label = name if distance is None else f"{name}, distance {distance}"
        values = ([x.errors.value for _, x in points], [x.emission.value for _, x in points])
        for axis, own in zip(axes, (*values, [x.shown.median for _, x in points]), strict=True):
            axis.plot([n for n, _ in points], own, dash, color=colour, label=label, marker="o", markersize=3)
