"""Which utterances a model can be trained on."""

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.utils import compute_num_frames

from transducer_gn.data.settings import BatchSettings
from transducer_gn.data.tokenizer import Tokenizer
from transducer_gn.errors import UserError

FRAME_SHIFT = 0.01
SAMPLING_RATE = 16000
# Cuts of a small corpus stay in memory (a few kB each); larger manifests are read anew in every epoch.
MOST_IN_MEMORY = 20000


def encoder_frames_of_default_subsampling(feature_frames: int) -> int:
    """Return the encoder frames of two convolutions with kernel 3, stride 2 and no padding."""
    return max(0, ((feature_frames - 1) // 2 - 1) // 2)


@dataclass(frozen=True)
class FilterReport:
    """What filtering kept and dropped.

    `durations` are those of the utterances kept, in seconds; `fingerprint` identifies the utterances kept, in order.
    """

    kept: int
    too_short: int
    too_long: int
    too_many_tokens: int
    durations: list[float]
    fingerprint: str

    def __str__(self) -> str:
        return (
            f"{self.kept} utterances of {sum(self.durations) / 3600:.2f} hours; left out: {self.too_short} too short, "
            f"{self.too_long} too long, {self.too_many_tokens} with more tokens than the lattice allows"
        )


@dataclass(frozen=True)
class Usable:
    """Says what keeps a cut out of training. A class, so that lazy cut sets that hold it can be pickled."""

    tokenizer: Tokenizer
    settings: BatchSettings
    encoder_frames: Callable[[int], int]

    def fault(self, cut: Cut) -> str | None:
        """Return the reason to leave `cut` out, or None."""
        if cut.duration < self.settings.min_duration:
            return "too_short"
        if cut.duration > self.settings.max_duration_of_utterance:
            return "too_long"
        frames = self.encoder_frames(compute_num_frames(cut.duration, FRAME_SHIFT, SAMPLING_RATE))
        tokens = len(self.tokenizer.encode(cut.supervisions[0].text))
        return "too_many_tokens" if tokens > frames * self.settings.max_tokens_per_frame else None

    def __call__(self, cut: Cut) -> bool:
        return self.fault(cut) is None


def usable_cuts(
    cuts: CutSet,
    tokenizer: Tokenizer,
    settings: BatchSettings,
    encoder_frames: Callable[[int], int],
    training: bool,
) -> tuple[CutSet, FilterReport]:
    """Return the cuts to use (all of them unless `training`), and log what was left out.

    Cuts come back in memory if they are few. Reads the manifest once: about a minute for all of LibriSpeech at three speeds, seconds for anything small.
    """
    usable = Usable(tokenizer, settings, encoder_frames)
    counts = {"too_short": 0, "too_long": 0, "too_many_tokens": 0}
    durations, digest = [], hashlib.sha256()
    kept: list[Cut] = []
    for cut in cuts:
        if training and (fault := usable.fault(cut)) is not None:
            counts[fault] += 1
            continue
        durations.append(cut.duration)
        if len(kept) <= MOST_IN_MEMORY:
            kept.append(cut)
        digest.update(f"{cut.id} {cut.duration}\n".encode())
    report = FilterReport(len(durations), durations=durations, fingerprint=digest.hexdigest()[:16], **counts)
    logging.info("%s batches: %s", "Training" if training else "Evaluation", report)
    if not durations:
        raise UserError(f"there is nothing to make batches of: {report}")
    if len(kept) <= MOST_IN_MEMORY:
        return CutSet.from_cuts(kept), report
    return cuts.filter(usable) if training else cuts, report
