"""The figure of the two readings of an ambiguous sound over time, under a local and a global system."""

import logging
from collections.abc import Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from transducer_gn.common.errors import UserError
from transducer_gn.recognition.system import load_system
from transducer_gn.reporting.extras import Comparison
from transducer_gn.reporting.figure import GLOBAL, LOCAL, STYLE, WRONG, ReportFigure
from transducer_gn.synthetic.readings import (
    Readings,
    ambiguous_batch,
    average_after,
    follow_readings,
    telling_utterance,
)


def compare_readings(comparison: Comparison) -> ReportFigure | None:
    """The two readings of an ambiguous utterance; None where no utterance tells the systems apart."""
    try:
        systems = load_system(comparison.baseline), load_system(comparison.challenger)
        found = [ambiguous_batch(system, comparison.data, comparison.part) for system in systems]
        batches = [batch for batch in found if batch is not None]
        if len(batches) < len(systems):
            return None
        local, other = (follow_readings(system, batch) for system, batch in zip(systems, batches, strict=True))
    except UserError as error:
        logging.warning("no figure of the two readings: %s", error)
        return None
    chosen = telling_utterance(local, other)
    if chosen is None:
        return None
    return readings_figure(local, other, (comparison.baseline.name, comparison.challenger.name), chosen)


@rc_context(STYLE)
def readings_figure(
    local: Sequence[Readings], other: Sequence[Readings], names: tuple[str, str], chosen: str
) -> ReportFigure:
    """One ambiguous utterance through two systems, and the mean over many."""
    figure = Figure(figsize=(8.4, 6.2), layout="constrained")
    axes = figure.subplot_mosaic([["a", "b"], ["c", "c"]])
    for key, readings, name in (("a", local, names[0]), ("b", other, names[1])):
        one = next(r for r in readings if r.id == chosen)
        draw_readings(axes[key], one, name)
    axes["b"].sharey(axes["a"])
    text = next(r for r in local if r.id == chosen).text
    has_times = any(r.settling for r in local)
    if has_times:
        draw_average(axes["c"], (local, other), names)
    else:
        axes["c"].remove()
    figure.suptitle(f"“{text}”", fontsize=11)
    caption = (
        f"The same ambiguous utterance ({chosen}) through both systems: share of the beam's weight of either reading "
        "of the blended word, frame by frame. It was chosen because the local system ends up with the wrong reading "
        "and the global one with the right one, and because the word that settles it comes late. "
    )
    if has_times:
        caption += f"Below: the right reading's share of the two, on average over {len(local)} ambiguous utterances."
    return ReportFigure("readings", figure, caption, explains_key=True)


def draw_readings(axis: Axes, readings: Readings, name: str) -> None:
    """Shares of the two readings over time."""
    right, wrong = readings.words
    axis.plot(readings.seconds, readings.right, color=GLOBAL, label=f"{right} (said)")
    axis.plot(readings.seconds, readings.wrong, color=WRONG, label=wrong)
    spans = (("blended sound", readings.blend, "#f3e3c3"), ("settling word", readings.settling, "#d6ecd9"))
    for label, span, colour in spans:
        if span is not None:
            axis.axvspan(*span, color=colour, zorder=0, label=label)
    axis.set_title(name, fontsize=10)
    axis.set_xlabel("seconds")
    axis.set_ylabel("share of the beam")
    axis.set_ylim(-0.03, 1.03)
    axis.legend(fontsize=8)


def draw_average(axis: Axes, both: tuple[Sequence[Readings], Sequence[Readings]], names: tuple[str, str]) -> None:
    """Mean share of the right reading around the settling word's start."""
    grid = [0.04 * step for step in range(-25, 31)]
    for readings, name, colour in zip(both, names, (LOCAL, GLOBAL), strict=True):
        axis.plot(grid, average_after(readings, grid), color=colour, label=name)
    axis.axvline(0, color="#009e73", linewidth=1, label="settling word starts")
    axis.set_ylim(0, 1.03)
    axis.set_xlabel("seconds after the start of the settling word")
    axis.set_ylabel("right reading's share")
    axis.legend(fontsize=8)
