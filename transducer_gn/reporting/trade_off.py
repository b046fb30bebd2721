"""Errors against delay: every run with chunks of several sizes, as a table and as curves.

One point per system is no fair comparison of delays, since a system may have fewer errors for being later. Curves are:
what one system reaches at a delay, the other reaches or does not.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes

from transducer_gn.evaluation.bootstrap import Interval
from transducer_gn.reporting.figure import COLOURS, STYLE, ReportFigure, new_figure
from transducer_gn.reporting.operating_points import DELAY, LIVE, TradeOff
from transducer_gn.reporting.system_tables import measure_name
from transducer_gn.reporting.table import Table

MARKERS = "os^vD"
NOTE = (
    "Emission: expected over all alignments of the reference, from the beginning of the utterance. The wait for the "
    "rest of a chunk is not in it, and only differences say much. It is in when a word last changed."
)


def trade_off_table(trade_off: TradeOff, part: str) -> Table | None:
    """All points; None if there are none, and nothing to say about why."""
    points = trade_off.points
    if not points and not trade_off.notes:
        return None
    rates, times = names_of(point.errors for point in points), timed_names(trade_off)
    apart = [name for name in timed_names(trade_off, DELAY) if name != "all"]
    several = len({point.folder for point in points}) > 1
    rows = [
        [
            point.run,
            *([point.folder] if several else []),
            point.chunk,
            *(cell(point.errors.get(name), 2) for name in rates),
            *(cell(point.emission.get(name), 1) for name in times),
            *(cell(point.live.get(name), decimals) for name, (_, decimals) in LIVE.items()),
            *(cell(point.delays.get(name), 0) for name in apart),
        ]
        for point in points
    ]
    columns = ["run", *(["folder"] if several else []), "chunk"]
    columns += [f"{measure_name(name)}, %" for name in rates]
    columns += ["emission, ms" if name == "all" else f"emission, {name}" for name in times]
    columns += [label for label, _ in LIVE.values()]
    columns += [f"last changed, {name}" for name in apart]
    return Table(f"Errors against delay on {part}", columns, rows, [*([NOTE] if points else []), *trade_off.notes])


def names_of(found: Iterable[Mapping[str, Interval]]) -> list[str]:
    """All names, in order."""
    return list(dict.fromkeys(name for values in found for name in values))


def timed_names(trade_off: TradeOff, over: str = "") -> list[str]:
    """Names of the error rates of whose words such a delay was measured, too; see `Operated.place`."""
    return [name for name in names_of(point.errors for point in trade_off.points) if trade_off.curves(name, over)]


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
    if delayed := timed_names(trade_off, DELAY):
        caption = (
            "Errors against the time after which half of the same words, of those that are right in the end, have "
            "changed for the last time in live text, each system with chunks of several sizes."
        )
        found.append(curves_figure(trade_off, "errors-by-delay", [(name, DELAY) for name in delayed], caption))
    return found


def curves_figure(trade_off: TradeOff, title: str, panels: Sequence[tuple[str, str]], caption: str) -> ReportFigure:
    """A panel for each error rate and delay, in which every system is a line.

    Args:
        panels: names for `TradeOff.curves`
    """
    figure, axes = new_figure(len(panels), 0.5 + 2.9 * len(panels), share=False)
    # A run looks the same in every panel and figure, also where others have no points.
    looks = {run: index for index, run in enumerate(dict.fromkeys(point.run for point in trade_off.points))}
    for axis, (name, over) in zip(axes, panels, strict=True):
        for run, curve in trade_off.curves(name, over).items():
            draw_curve(axis, run, curve, looks[run])
        axis.set_xlabel("word last changed after its end, p50, ms" if over else "mean emission time, ms")
        axis.set_ylabel(f"{measure_name(name)}, %")
        axis.set_ylim(bottom=0)
        axis.ticklabel_format(axis="x", useOffset=False)
    lines = {str(line.get_label()): line for axis in axes for line in axis.lines}
    runs = [run for run in looks if run in lines]
    figure.legend([lines[run] for run in runs], runs, loc="outside lower center", ncols=3, fontsize=8)
    return ReportFigure(title, figure, caption)


def draw_curve(axis: Axes, run: str, points: Sequence[tuple[tuple[float, float], str]], index: int) -> None:
    """One system's points, each with its chunk beside it, joined from left to right."""
    colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
    axis.plot([x for (x, _), _ in points], [y for (_, y), _ in points], color=colour, marker=marker, label=run)
    for place, chunk in points:
        axis.annotate(chunk, place, textcoords="offset points", xytext=(4, 4), fontsize=7, color=colour)
