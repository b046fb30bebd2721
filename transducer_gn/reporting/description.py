"""A prepared folder for people: a table of its parts, and a figure of a few utterances."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

from lhotse.cut import Cut
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from transducer_gn.data.cuts import stored_features
from transducer_gn.data.description import PartDescription
from transducer_gn.data.labels import GROUP_FIELD, SAME_SOUND_FIELD, group_of, time_spans
from transducer_gn.reporting.figure import save_image
from transducer_gn.reporting.table import Table

SPAN_COLOURS = ("#ff7f0e", "#17becf", "#bcbd22", "#e377c2")


def parts_table(title: str, parts: Sequence[PartDescription]) -> Table:
    """The parts of a folder; columns with several numbers are the 5th, 50th and 95th percentile and the largest."""
    columns = ["part", "role", "utts", "hours", "speakers", "seconds 5/50/95/100 %", "tokens 5/50/95/100 %"]
    columns += ["unseen words", "unknown tokens", "kinds"]
    rows = [
        [
            part.name,
            part.role,
            str(part.utterances),
            f"{part.hours:.2f}",
            str(part.speakers),
            " / ".join(f"{value:.1f}" for value in part.durations),
            " / ".join(f"{value:.0f}" for value in part.tokens),
            f"{part.words_unseen} ({100 * part.words_unseen / max(1, part.words):.1f} %)",
            str(part.tokens_unknown),
            ", ".join(f"{count} {group}" for group, count in part.groups.items()),
        ]
        for part in parts
    ]
    return Table(title, columns, rows)


def draw_examples(cuts: Sequence[Cut], path: Path) -> None:
    """Draw the features of each cut with its transcript, and mark the stretches of time that its manifest names."""
    figure = Figure(figsize=(11, 2.6 * len(cuts)), layout="constrained")
    axes = figure.subplots(len(cuts), 1, squeeze=False)
    longest = max(cut.duration for cut in cuts)
    for axis, cut in zip(axes[:, 0], cuts, strict=True):
        draw_cut(axis, cut)
        axis.set_xlim(0, longest)
    axes[-1, 0].set_xlabel("seconds")
    save_image(figure, path, dpi=110)


def draw_cut(axis: Axes, cut: Cut) -> None:
    """Draw one utterance: mel bins over time, words at their times if known."""
    supervision = cut.supervisions[0]
    custom = supervision.custom or {}
    features = stored_features(cut)
    axis.imshow(features.T, origin="lower", aspect="auto", extent=(0, cut.duration, 0, features.shape[1]), cmap="magma")
    axis.set_ylabel("mel bin")
    words = (supervision.alignment or {}).get("word", [])
    text = textwrap.fill(supervision.text, 130, max_lines=2, placeholder=" ...")
    axis.set_title(title_of(cut) if words else f"{title_of(cut)}\n{text}", loc="left", fontsize=9)
    for word in words:
        axis.text((word.start + word.end) / 2, 82, word.symbol, ha="center", va="bottom", fontsize=7, clip_on=True)
    if words:
        axis.set_ylim(0, 90)
    for number, (name, (start, end)) in enumerate(time_spans(custom).items()):
        colour = SPAN_COLOURS[number % len(SPAN_COLOURS)]
        axis.axvspan(start, end, facecolor="none", edgecolor=colour, linewidth=2)
        box = dict(facecolor=colour, edgecolor="none", pad=1.5)
        axis.text((start + end) / 2, 4, name, ha="center", color="black", fontsize=8, bbox=box)


def title_of(cut: Cut) -> str:
    """Id and group of an utterance, and what else its manifest says about it."""
    custom = cut.supervisions[0].custom or {}
    shown = time_spans(custom).keys() | {GROUP_FIELD, SAME_SOUND_FIELD}
    others = [
        f"{name} {', '.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in custom.items()
        if name not in shown
    ]
    return "; ".join([f"{cut.id}, {group_of(custom)}", *others])
