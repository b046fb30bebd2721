"""What is in a prepared folder: a table of its parts, and a figure of a few utterances."""

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from lhotse.cut import Cut

from transducer_gn.common.files import replace_when_done
from transducer_gn.data.layout import ROLES
from transducer_gn.data.prepared import PreparedData
from transducer_gn.data.tokenizer import UNKNOWN, Tokenizer

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (the backend must be chosen first)

QUANTILES = (0.05, 0.5, 0.95, 1.0)
BLEND_COLOUR = "#ff7f0e"
SETTLING_COLOUR = "#17becf"


@dataclass(frozen=True)
class PartDescription:
    """One part in numbers; quantiles are the 5th, 50th, 95th percentile and the largest."""

    name: str
    role: str
    utterances: int
    hours: float
    speakers: int
    durations: tuple[float, ...]
    tokens: tuple[float, ...]
    words: int
    words_unseen: int
    tokens_unknown: int
    kinds: dict[str, int]


def describe_part(
    data: PreparedData, part: str, role: str, tokenizer: Tokenizer, vocabulary: set[str]
) -> PartDescription:
    """Measure one part; the words of a training part are added to `vocabulary`, others' are looked up in it."""
    durations, tokens, kinds, speakers = [], [], Counter(), set()
    words = unseen = unknown = 0
    for cut in data.cuts(part):
        supervision = cut.supervisions[0]
        spoken = supervision.text.split()
        if role == "train":
            vocabulary.update(spoken)
        ids = tokenizer.encode(supervision.text)
        durations.append(cut.duration)
        tokens.append(len(ids))
        kinds[(supervision.custom or {}).get("kind", "ordinary")] += 1
        speakers.add(supervision.speaker)
        words += len(spoken)
        unseen += sum(word not in vocabulary for word in spoken)
        unknown += ids.count(UNKNOWN)
    return PartDescription(
        name=part,
        role=role,
        utterances=len(durations),
        hours=sum(durations) / 3600,
        speakers=len(speakers),
        durations=tuple(float(value) for value in np.quantile(durations, QUANTILES)),
        tokens=tuple(float(value) for value in np.quantile(tokens, QUANTILES)),
        words=words,
        words_unseen=unseen,
        tokens_unknown=unknown,
        kinds=dict(sorted(kinds.items())),
    )


def describe_parts(data: PreparedData, tokenizer: Tokenizer) -> list[PartDescription]:
    """Measure all parts, training parts first."""
    vocabulary: set[str] = set()
    return [describe_part(data, part, role, tokenizer, vocabulary) for role in ROLES for part in data.parts(role)]


def table(parts: Sequence[PartDescription]) -> str:
    """Return the parts as a table in plain text."""
    header = ["part", "role", "utts", "hours", "speakers", "seconds 5/50/95/100 %", "tokens 5/50/95/100 %"]
    header += ["unseen words", "unknown tokens", "kinds"]
    rows = [header]
    for part in parts:
        rows.append(
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
                ", ".join(f"{count} {kind}" for kind, count in part.kinds.items()),
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def choose_examples(data: PreparedData, count: int) -> list[Cut]:
    """Return a few utterances of the first test part (else dev, else training): twins first, then other kinds."""
    part = next(data.parts(role)[0] for role in ("test", "dev", "train") if data.parts(role))
    cuts = list(data.cuts(part))
    by_id = {cut.id: cut for cut in cuts}

    def custom(cut: Cut) -> dict:
        return cut.supervisions[0].custom or {}

    ambiguous = next((cut for cut in cuts if custom(cut).get("kind") == "ambiguous"), None)
    chosen = [ambiguous, by_id[custom(ambiguous)["twin"]]] if ambiguous is not None else []
    control = next((cut for cut in cuts if custom(cut).get("kind") == "control"), None)
    chosen += [control] if control is not None else []
    others = (cut for cut in cuts if custom(cut).get("kind", "ordinary") == "ordinary")
    return [*chosen, *(cut for cut, _ in zip(others, range(max(0, count - len(chosen)))))][:count]


def draw_examples(cuts: Sequence[Cut], path: Path) -> None:
    """Draw the features of each cut with its transcript; mark blends and the words that settle them."""
    figure, axes = pyplot.subplots(len(cuts), 1, figsize=(11, 2.6 * len(cuts)), squeeze=False, layout="constrained")
    longest = max(cut.duration for cut in cuts)
    for axis, cut in zip(axes[:, 0], cuts):
        draw_cut(axis, cut)
        axis.set_xlim(0, longest)
    axes[-1, 0].set_xlabel("seconds")
    with replace_when_done(path) as sibling:
        figure.savefig(sibling, dpi=110)
    pyplot.close(figure)


def draw_cut(axis: "pyplot.Axes", cut: Cut) -> None:
    """Draw one utterance: mel bins over time, words at their times if known."""
    supervision = cut.supervisions[0]
    custom = supervision.custom or {}
    features = cut.load_features()
    axis.imshow(features.T, origin="lower", aspect="auto", extent=(0, cut.duration, 0, features.shape[1]), cmap="magma")
    axis.set_ylabel("mel bin")
    words = (supervision.alignment or {}).get("word", [])
    title = f"{cut.id}, {custom.get('kind', 'ordinary')}"
    if "pair" in custom:
        title += f": blend of {' and '.join(custom['pair'])}"
    text = textwrap.fill(supervision.text, 130, max_lines=2, placeholder=" ...")
    axis.set_title(title if words else f"{title}\n{text}", loc="left", fontsize=9)
    for word in words:
        axis.text((word.start + word.end) / 2, 82, word.symbol, ha="center", va="bottom", fontsize=7, clip_on=True)
    if words:
        axis.set_ylim(0, 90)
    for name, colour, label in (("blend", BLEND_COLOUR, "blend"), ("settling", SETTLING_COLOUR, "settles it")):
        if name in custom:
            start, end = custom[name]
            axis.axvspan(start, end, facecolor="none", edgecolor=colour, linewidth=2)
            box = dict(facecolor=colour, edgecolor="none", pad=1.5)
            axis.text((start + end) / 2, 4, label, ha="center", color="black", fontsize=8, bbox=box)
