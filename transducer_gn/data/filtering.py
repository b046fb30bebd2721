"""Which utterances a model can be trained on."""

import hashlib
import logging
from dataclasses import dataclass

from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.utils import compute_num_frames

from transducer_gn.common.errors import UserError
from transducer_gn.common.framing import FILTER_BANKS, Framing
from transducer_gn.common.units import SAMPLING_RATE
from transducer_gn.config import BatchConfig
from transducer_gn.data.tokenizer import Tokenizer

# Cuts of a small corpus stay in memory (a few kB each); larger manifests are read anew in every epoch.
MOST_IN_MEMORY = 20000


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
            f"{self.too_long} too long, {self.too_many_tokens} with too many tokens for their length"
        )


@dataclass(frozen=True)
class Usable:
    """Says what keeps a cut out of training. A class, so that lazy cut sets that hold it can be pickled."""

    tokenizer: Tokenizer
    settings: BatchConfig
    framing: Framing = FILTER_BANKS

    def fault(self, cut: Cut) -> str | None:
        """Return the reason to leave `cut` out, or None."""
        if cut.duration < self.settings.min_duration:
            return "too_short"
        if cut.duration > self.settings.max_duration_of_utterance:
            return "too_long"
        vectors = compute_num_frames(cut.duration, self.framing.feature_shift, SAMPLING_RATE)
        frames = self.framing.encoder_frames(vectors)
        tokens = len(self.tokenizer.encode(cut.supervisions[0].text))
        return "too_many_tokens" if tokens > frames * self.settings.max_token_density else None

    def __call__(self, cut: Cut) -> bool:
        return self.fault(cut) is None


def usable_cuts(
    cuts: CutSet,
    usable: Usable,
    training: bool,
) -> tuple[CutSet, FilterReport]:
    """Return the cuts to use (all of them unless `training`), and log what was left out.

    Cuts come back in memory if they are few. Reads the manifest once: about a minute for all of LibriSpeech at three
    speeds, seconds for anything small.
    """
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
