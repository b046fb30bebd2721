"""Which utterances a model can be trained on."""

import hashlib
import logging
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.utils import compute_num_frames
from numpy.typing import NDArray

from transducer_gn.common.errors import UserError
from transducer_gn.common.framing import FILTER_BANKS, Framing
from transducer_gn.common.units import SAMPLING_RATE
from transducer_gn.config import BatchConfig
from transducer_gn.data.epoch_plan import Seconds, is_small
from transducer_gn.data.index import ManifestIndex, TemporaryIndex
from transducer_gn.data.tokenizer import Tokenizer

FAULTS = ("too_short", "too_long", "too_many_tokens")


@dataclass(frozen=True)
class FilterReport:
    """What filtering kept and dropped.

    Attributes:
        durations: [N] seconds of the utterances kept
        fingerprint: identifies the utterances kept, in order
    """

    kept: int
    durations: Seconds
    fingerprint: str
    too_short: int
    too_long: int
    too_many_tokens: int

    def __str__(self) -> str:
        return (
            f"{self.kept} utterances of {self.durations.sum() / 3600:.2f} hours; left out: {self.too_short} too short, "
            f"{self.too_long} too long, {self.too_many_tokens} with too many tokens for their length"
        )


@dataclass(frozen=True)
class Usable:
    """Says what keeps a cut out of training."""

    tokenizer: Tokenizer
    settings: BatchConfig
    framing: Framing = FILTER_BANKS

    def fault(self, cut: Cut) -> str | None:
        """Return the reason to leave `cut` out, or None."""
        if cut.duration < self.settings.min_duration:
            return "too_short"
        if cut.duration > self.settings.max_duration_of_utterance:
            return "too_long"
        tokens = len(self.tokenizer.encode(cut.supervisions[0].text))
        return "too_many_tokens" if tokens > self.most_tokens(cut.duration) else None

    def most_tokens(self, seconds: float) -> int:
        """Return the largest number of tokens that an utterance of so many seconds may have."""
        vectors = compute_num_frames(seconds, self.framing.feature_shift, SAMPLING_RATE)
        return self.framing.encoder_frames(vectors) * self.settings.max_token_density


class Utterances(Protocol):
    """What batches are planned and made of.

    Attributes:
        durations: [N] seconds of each utterance
    """

    durations: Seconds

    def cut(self, position: int) -> Cut:
        """Return one utterance."""


class UtteranceTable(Protocol):
    """What is known of all utterances without reading any.

    Attributes:
        durations: [N] seconds of each utterance
    """

    durations: Seconds

    @property
    def fingerprint(self) -> str:
        """Identifies the utterances, in order."""

    def tokens(self, tokenizer: Tokenizer) -> NDArray[np.int32]:
        """Return [N] the number of tokens of each utterance."""


class CutsInMemory:
    """The utterances of a small corpus, at hand."""

    def __init__(self, cuts: list[Cut]) -> None:
        self._cuts = cuts
        self.durations: Seconds = np.array([cut.duration for cut in cuts], dtype=np.float64)

    def cut(self, position: int) -> Cut:
        """Return one utterance."""
        return self._cuts[position]


class IndexedCuts:
    """Some utterances of an index, read when they are asked for."""

    def __init__(self, index: ManifestIndex, chosen: NDArray[np.int64]) -> None:
        self._index = index
        self._chosen = chosen
        self.durations: Seconds = index.durations[chosen]

    def cut(self, position: int) -> Cut:
        """Read one utterance."""
        return self._index.cut(int(self._chosen[position]))


def usable_cuts(cuts: CutSet | ManifestIndex, usable: Usable, training: bool) -> tuple[Utterances, FilterReport]:
    """Return the utterances to use (all of them unless `training`), and log what was left out.

    A set of cuts is read to its end, and kept in memory if it is small; of an index only the arrays are read.
    """
    utterances, report = (
        from_index(cuts, usable, training) if isinstance(cuts, ManifestIndex) else from_cuts(cuts, usable, training)
    )
    logging.info("%s batches: %s", "Training" if training else "Evaluation", report)
    if not report.kept:
        raise UserError(f"there is nothing to make batches of: {report}")
    return utterances, report


def from_cuts(cuts: CutSet, usable: Usable, training: bool) -> tuple[Utterances, FilterReport]:
    """Choose among cuts one by one; more than are small go through an index that lasts as long as they are used."""
    counts = dict.fromkeys(FAULTS, 0)
    kept: list[Cut] = []
    digest = hashlib.sha256()
    for cut in cuts:
        if training and (fault := usable.fault(cut)) is not None:
            counts[fault] += 1
            continue
        kept.append(cut)
        if not is_small(len(kept)):
            return from_index(TemporaryIndex(cuts), usable, training)
        digest.update(f"{cut.id} {cut.duration}\n".encode())
    utterances = CutsInMemory(kept)
    return utterances, FilterReport(len(kept), utterances.durations, digest.hexdigest()[:16], **counts)


def from_index(index: ManifestIndex, usable: Usable, training: bool) -> tuple[Utterances, FilterReport]:
    """Choose among all utterances of an index at once, by the same limits."""
    chosen, report = usable_positions(index, usable, training)
    return IndexedCuts(index, chosen), report


def usable_positions(
    table: UtteranceTable, usable: Usable, training: bool = True
) -> tuple[NDArray[np.int64], FilterReport]:
    """Return the places [N] of the utterances to use (all of them unless `training`), and what was left out."""
    durations, settings = table.durations, usable.settings
    faulty = {name: np.zeros(len(durations), dtype=bool) for name in FAULTS}
    if training:
        lengths, places = np.unique(durations, return_inverse=True)
        faulty["too_short"] = durations < settings.min_duration
        faulty["too_long"] = durations > settings.max_duration_of_utterance
        most = np.array([usable.most_tokens(seconds) for seconds in lengths.tolist()])[places]
        dense = table.tokens(usable.tokenizer) > most
        faulty["too_many_tokens"] = dense & ~faulty["too_short"] & ~faulty["too_long"]
    chosen = np.flatnonzero(~np.logical_or.reduce(list(faulty.values())))
    digest = hashlib.sha256(table.fingerprint.encode() + chosen.tobytes())
    counts = {name: int(found.sum()) for name, found in faulty.items()}
    return chosen, FilterReport(len(chosen), np.asarray(durations[chosen]), digest.hexdigest()[:16], **counts)
