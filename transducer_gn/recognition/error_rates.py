"""Word errors of utterances, and the groups of words that error rates are given for.

A word error rate is a ratio of two sums over utterances. Everything here keeps the two numbers of each utterance, so
that `bootstrap` can draw utterances anew; twins, which share their audio, are drawn together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import kaldialign
import numpy as np

# Words hold no spaces, so this is none of them.
EMPTY = " "

AlignedPair = tuple[str, str]


@dataclass(frozen=True)
class Recognised:
    """One utterance: what was said and what was recognised.

    Attributes:
      kind: of utterance, such as "ordinary" or "ambiguous".
      pair: the two words that a blended sound may stand for, of which the reference has one; empty for most utterances.
      twin: id of the utterance with the same sound and the other word; empty for most utterances.
    """

    id: str
    reference: list[str]
    hypothesis: list[str]
    kind: str = "ordinary"
    pair: tuple[str, ...] = ()
    twin: str = ""

    @property
    def unit(self) -> str:
        """What stands or falls together: the id, or that of the first of two twins."""
        return min(self.id, self.twin) if self.twin else self.id


@dataclass(frozen=True)
class Errors:
    """Counts of one utterance or of many: they can be added."""

    substitutions: int = 0
    deletions: int = 0
    insertions: int = 0
    words: int = 0

    @property
    def total(self) -> int:
        return self.substitutions + self.deletions + self.insertions

    @property
    def rate(self) -> float:
        """Errors per hundred words of the reference; NaN where there are no words."""
        return 100 * self.total / self.words if self.words else float("nan")

    def __add__(self, other: "Errors") -> "Errors":
        return Errors(
            self.substitutions + other.substitutions,
            self.deletions + other.deletions,
            self.insertions + other.insertions,
            self.words + other.words,
        )


@dataclass(frozen=True)
class Measure:
    """Errors and the words they could have been made on, of everything that counts.

    Attributes:
      ids: of the units that may be drawn, which are utterances, or two twins; errors, words: [n] each.
      utterances: how many there are.
    """

    ids: list[str]
    errors: np.ndarray
    words: np.ndarray
    utterances: int

    @property
    def rate(self) -> float:
        """Per cent; NaN where there are no words."""
        return 100 * float(self.errors.sum()) / float(self.words.sum()) if self.words.sum() else float("nan")


def align(reference: Sequence[str], hypothesis: Sequence[str]) -> list[AlignedPair]:
    """Pairs of words with the fewest errors, `EMPTY` on one side of an insertion or a deletion."""
    return kaldialign.align(list(reference), list(hypothesis), EMPTY)


def count_errors(alignment: Sequence[AlignedPair]) -> Errors:
    """The errors in an alignment."""
    return Errors(
        substitutions=sum(a != b and EMPTY not in (a, b) for a, b in alignment),
        deletions=sum(b == EMPTY for _, b in alignment),
        insertions=sum(a == EMPTY for a, _ in alignment),
        words=sum(a != EMPTY for a, _ in alignment),
    )


def total_errors(utterances: Sequence[Recognised]) -> Errors:
    """The errors of all utterances together."""
    return sum((count_errors(align(u.reference, u.hypothesis)) for u in utterances), Errors())


def blended_errors(utterance: Recognised) -> Errors:
    """The errors on the words whose sound is a blend: those of the reference that are of the utterance's pair."""
    pairs = [(a, b) for a, b in align(utterance.reference, utterance.hypothesis) if a in utterance.pair]
    return count_errors(pairs)


def measures(utterances: Sequence[Recognised]) -> dict[str, Measure]:
    """What to report: all words, all words by kind of utterance, and blended words by kind of utterance.

    Kinds are only told apart where there are several. Names are "all", the kinds, and "KIND words".
    """
    result = {"all": measure(utterances, all_errors)}
    kinds = sorted({utterance.kind for utterance in utterances}, key=kind_order)
    if len(kinds) > 1:
        for kind in kinds:
            result[kind] = measure([u for u in utterances if u.kind == kind], all_errors)
    for kind in kinds:
        own = [u for u in utterances if u.kind == kind and u.pair]
        if own:
            result[f"{kind} words"] = measure(own, blended_errors)
    return result


def all_errors(utterance: Recognised) -> Errors:
    """The errors of one utterance."""
    return count_errors(align(utterance.reference, utterance.hypothesis))


def measure(utterances: Sequence[Recognised], count: Callable[[Recognised], Errors]) -> Measure:
    """Count errors of each utterance, those of twins together."""
    counts: dict[str, Errors] = {}
    for utterance in utterances:
        counts[utterance.unit] = counts.get(utterance.unit, Errors()) + count(utterance)
    return Measure(
        ids=list(counts),
        errors=np.array([errors.total for errors in counts.values()], dtype=np.int64),
        words=np.array([errors.words for errors in counts.values()], dtype=np.int64),
        utterances=len(utterances),
    )


def kind_order(kind: str) -> tuple[int, str]:
    """Ordinary, ambiguous, control, then others by name."""
    known = ("ordinary", "ambiguous", "control")
    return (known.index(kind) if kind in known else len(known), kind)
