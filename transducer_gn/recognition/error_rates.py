"""Word errors of utterances, and the groups of words that error rates are given for.

A word error rate is a ratio of two sums over utterances. Everything here keeps the two numbers of each unit of
utterances, so that units can be drawn anew; utterances that share some of their sound are of one unit.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import kaldialign
import numpy as np

from transducer_gn.data.labels import DEFAULT_GROUP, group_order

# Words hold no spaces, so this is none of them.
EMPTY = " "

AlignedPair = tuple[str, str]


@dataclass(frozen=True)
class Recognised:
    """One utterance: what was said and what was recognised.

    Attributes:
        group: error rates are also given for each group apart
        unit: utterances of one unit are drawn together; empty for an utterance that stands alone
        custom: what the manifest says besides about the utterance
    """

    id: str
    reference: list[str]
    hypothesis: list[str]
    group: str = DEFAULT_GROUP
    unit: str = ""
    custom: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Errors:
    """Counts of one utterance or of many: they can be added."""

    substitutions: int = 0
    deletions: int = 0
    insertions: int = 0
    words: int = 0

    @property
    def total(self) -> int:
        """Errors of all kinds."""
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
        ids: of the units that may be drawn
        errors: [n] of each unit
        words: [n] of each unit's references
        utterances: how many there are
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


def edit_distance(reference: Sequence[Hashable], hypothesis: Sequence[Hashable]) -> int:
    """The fewest errors that turn a reference into a hypothesis: those of `align`, without the pairs."""
    return int(kaldialign.edit_distance(list(reference), list(hypothesis))["total"])


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


def measures(utterances: Sequence[Recognised]) -> dict[str, Measure]:
    """What to report: all words, named "all", and the words of each group where there are several."""
    result = {"all": measure(utterances, all_errors)}
    groups = sorted({utterance.group for utterance in utterances}, key=group_order)
    if len(groups) > 1:
        for group in groups:
            result[group] = measure([u for u in utterances if u.group == group], all_errors)
    return result


def all_errors(utterance: Recognised) -> Errors:
    """The errors of one utterance."""
    return count_errors(align(utterance.reference, utterance.hypothesis))


def measure(utterances: Sequence[Recognised], count: Callable[[Recognised], Errors]) -> Measure:
    """Count errors of each utterance, those of one unit together."""
    counts: dict[str, Errors] = {}
    for utterance in utterances:
        unit = utterance.unit or utterance.id
        counts[unit] = counts.get(unit, Errors()) + count(utterance)
    return Measure(
        ids=list(counts),
        errors=np.array([errors.total for errors in counts.values()], dtype=np.int64),
        words=np.array([errors.words for errors in counts.values()], dtype=np.int64),
        utterances=len(utterances),
    )
