"""How time is cut: samples into feature frames, feature frames into encoder frames. The only place that counts them.

A front end makes one feature vector every `feature_step` samples; subsampling makes encoder frames of `subsampling`
vectors each. An encoder carries the `Framing` of its front end as `encoder.framing`; streams, word times and the times
of a display ask it and know no numbers of their own.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from transducer_gn.common.errors import require
from transducer_gn.common.units import SAMPLING_RATE

if TYPE_CHECKING:
    # Only for checkers: torch takes seconds, which settings do not need.
    from torch import Tensor

# Numbers of frames, one or a tensor of them.
Frames = TypeVar("Frames", float, "Tensor")
Count = TypeVar("Count", int, "Tensor")


@dataclass(frozen=True)
class Framing:
    """The numbers of a front end and its subsampling.

    Attributes:
        feature_dim: numbers of a feature vector
        feature_step: samples from one feature vector to the next
        subsampling: feature vectors per encoder frame
        overlap: how many more than that an encoder frame sees
        margin: zero vectors that stand before the first and after the last feature vector of an utterance
        right: samples that must be heard after the end of a chunk before its features can be computed
    """

    feature_dim: int
    feature_step: int
    subsampling: int
    overlap: int = 0
    margin: int = 0
    right: int = 0

    @property
    def feature_shift(self) -> float:
        """Seconds from one feature vector to the next."""
        return self.feature_step / SAMPLING_RATE

    @property
    def frame_shift(self) -> float:
        """Seconds from one encoder frame to the next."""
        return self.feature_shift * self.subsampling

    @property
    def right_seconds(self) -> float:
        """Seconds by which everything is known later than its place in the audio says."""
        return self.right / SAMPLING_RATE

    def samples(self, features: int) -> int:
        """Samples that so many feature vectors stand for."""
        return features * self.feature_step

    def feature_frames(self, samples: Count) -> Count:
        """Feature vectors of utterances of so many samples, halves rounded up, as lhotse counts them."""
        return (samples + self.feature_step // 2) // self.feature_step

    def encoder_frames(self, feature_frames: int) -> int:
        """Encoder frames of an utterance of so many feature vectors."""
        return self.frames_within(feature_frames + 2 * self.margin)

    def encoder_lengths(self, lengths: "Tensor") -> "Tensor":
        """Encoder frames [B] of utterances of `lengths` [B] feature vectors."""
        seen = lengths + 2 * self.margin - self.overlap
        return seen.div(self.subsampling, rounding_mode="floor").clamp(min=0)

    def features_used(self, frames: int) -> int:
        """Feature vectors that nothing needs any more once so many encoder frames are there."""
        return self.subsampling * frames

    def features_seen(self, frames: int) -> int:
        """Feature vectors, those of the margin included, that so many successive encoder frames see."""
        return self.features_used(frames) + self.overlap

    def frames_within(self, features: int) -> int:
        """Encoder frames that see no more than so many successive feature vectors, those of the margin included."""
        return max(0, (features - self.overlap) // self.subsampling)

    def samples_heard(self, frames: int) -> int:
        """Samples that must have come before the first so many encoder frames, whole chunks, can be there."""
        return self.samples(self.features_seen(frames) - self.margin) + self.right

    def seconds_heard(self, frames: int) -> float:
        """The same in seconds."""
        return self.samples_heard(frames) / SAMPLING_RATE

    def emission_seconds(self, frame: Frames) -> Frames:
        """When what is emitted at encoder frame `frame`, from 0, is emitted: at its beginning, and `right` later."""
        return self.frame_shift * frame + self.right_seconds


# Log mel filter banks every 10 ms, and the convolutions that make one frame of four.
FILTER_BANKS = Framing(feature_dim=80, feature_step=SAMPLING_RATE // 100, subsampling=4, overlap=5, margin=1)
# What they are in silence: the logarithm of the least energy there is.
SILENCE = math.log(1e-10)
# Vectors of silence that may follow an utterance, a minute of filter banks: more is a slip, and takes memory.
LONGEST_TAIL = 6000


def require_tail(setting: str, tail: int) -> None:
    """Raise a `UserError` that names `setting` unless so many vectors of silence may follow an utterance."""
    require(0 <= tail <= LONGEST_TAIL, setting, f"must be from 0 to {LONGEST_TAIL} feature frames, not {tail}")
