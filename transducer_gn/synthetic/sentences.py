"""What is said in the mini corpus: ordinary, ambiguous and control sentences, drawn from a seed."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from transducer_gn.config.synthetic import ALL_DISTANCES
from transducer_gn.synthetic.lexicon import CATEGORIES, PAIRS, Pair

ORDINARY = "ordinary"
AMBIGUOUS = "ambiguous"
CONTROL = "control"

# What may stand between the ambiguous word and the word that settles it, by number of words.
GAPS = (
    ("",),
    ("CONJ", "PREP"),
    ("PREP DET", "CONJ DET", "VERB PREP"),
    ("PREP DET ADJ", "VERB PREP DET", "CONJ DET ADJ"),
    ("VERB PREP DET ADJ", "VERB ADV PREP DET", "PREP DET NOUN CONJ"),
    ("VERB ADV PREP DET ADJ", "PREP DET NOUN CONJ DET", "VERB PREP DET ADJ ADJ"),
    ("VERB PREP DET NOUN CONJ DET", "PREP DET ADJ NOUN PREP DET", "VERB ADV PREP DET ADJ ADJ"),
)
# What may stand before the ambiguous word, and after the word that settles it.
LEADS = ("", "DET", "DET", "DET ADJ", "PREP DET")
TAILS = ("", "", "", "ADV", "PREP NAME")
FREE_PATTERNS = (
    "NAME VERB_OBJ DET ADJ ANY_NOUN",
    "DET ANY_NOUN VERB PREP DET ANY_NOUN",
    "DET ADJ ANY_NOUN VERB ADV",
    "NAME CONJ NAME VERB_OBJ NUM ADJ ANY_NOUN",
    "DET ANY_NOUN CONJ DET ANY_NOUN VERB PREP NAME",
    "NUM ANY_NOUN VERB PREP DET ADJ ANY_NOUN",
    "NAME VERB ADV PREP DET ANY_NOUN",
)


@dataclass(frozen=True)
class Sentence:
    """The words of one sentence.

    `blended` is the position of the word whose audio is a blend of both words of `pair` and `settling` that of the
    word which settles it; both are None where there is none. Two sentences of the same `twin` number sound exactly
    the same until the settling word starts (a control's twins: to the end), and their labels differ.
    """

    words: tuple[str, ...]
    kind: str
    pair: Pair | None = None
    blended: int | None = None
    settling: int | None = None
    twin: int | None = None


def fill(pattern: str, draw: random.Random) -> list[str]:
    """Return one word for each category named in `pattern`, never the same word twice running."""
    words: list[str] = []
    for category in pattern.split():
        choices = [word for word in CATEGORIES[category] if word not in words[-1:]]
        words.append(draw.choice(choices))
    return words


def frame(draw: random.Random, distances: Sequence[int]) -> tuple[list[str], list[str], list[str]]:
    """Return what stands before the pair's word, between it and the later word, and after that."""
    gap = draw.choice(distances)
    return fill(draw.choice(LEADS), draw), fill(draw.choice(GAPS[gap]), draw), fill(draw.choice(TAILS), draw)


def ambiguous_twins(pair: Pair, twin: int, draw: random.Random, distances: Sequence[int]) -> list[Sentence]:
    """Return two sentences with the same blended word, told apart only by their settling words."""
    lead, gap, tail = frame(draw, distances)
    return [
        Sentence(
            (*lead, pair.words[side], *gap, pair.settling[side], *tail),
            AMBIGUOUS,
            pair,
            blended=len(lead),
            settling=len(lead) + 1 + len(gap),
            twin=twin,
        )
        for side in (0, 1)
    ]


def control_twins(pair: Pair, twin: int, draw: random.Random, distances: Sequence[int]) -> list[Sentence]:
    """Return two sentences that sound alike to the last sample but carry the two labels: nobody can tell."""
    lead, gap, tail = frame(draw, distances)
    later = draw.choice(CATEGORIES["NOUN"])
    return [
        Sentence((*lead, word, *gap, later, *tail), CONTROL, pair, blended=len(lead), twin=twin) for word in pair.words
    ]


def ordinary_sentence(draw: random.Random, distances: Sequence[int]) -> Sentence:
    """Return a sentence without any blend: half of them built like the ambiguous ones, with the clear word."""
    if draw.random() < 0.5:
        return Sentence(tuple(fill(draw.choice(FREE_PATTERNS), draw)), ORDINARY)
    pair = draw.choice(PAIRS)
    side = draw.randrange(2)
    lead, gap, tail = frame(draw, distances)
    return Sentence((*lead, pair.words[side], *gap, pair.settling[side], *tail), ORDINARY)


def draw_sentences(
    count: int, ambiguous: float, control: float, draw: random.Random, distances: Sequence[int] = ALL_DISTANCES
) -> list[Sentence]:
    """Return `count` sentences in random order, the given shares of them ambiguous and control.

    Twins come in twos, so the shares are rounded down to whole twins; the pairs take turns.

    Args:
        distances: numbers of words that may stand between a pair's word and the later one
    """
    ambiguous_count = int(count * ambiguous / 2)
    control_count = int(count * control / 2)
    turns = draw.sample(PAIRS, len(PAIRS))
    sentences: list[Sentence] = []
    for twin in range(ambiguous_count + control_count):
        make = ambiguous_twins if twin < ambiguous_count else control_twins
        sentences += make(turns[twin % len(turns)], twin, draw, distances)
    while len(sentences) < count:
        sentences.append(ordinary_sentence(draw, distances))
    draw.shuffle(sentences)
    return sentences
