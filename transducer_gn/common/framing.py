"""Frames in time: how many features and encoder frames audio has, and when each of them can be known.

A front end makes features of audio, one vector every `feature_step` samples; subsampling makes encoder frames of
`subsampling` features each. Everything that counts frames or turns them into seconds asks a `Framing`.
"""

from dataclasses import dataclass

from transducer_gn.common.units import SAMPLING_RATE


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

    def feature_frames(self, samples: int) -> int:
        """Feature vectors of an utterance of so many samples, halves rounded up, as lhotse counts them."""
        return (samples + self.feature_step // 2) // self.feature_step

    def encoder_frames(self, feature_frames: int) -> int:
        """Encoder frames of an utterance of so many feature vectors."""
        return max(0, (feature_frames + 2 * self.margin - self.overlap) // self.subsampling)

    def features_of(self, frames: int) -> int:
        """Feature vectors that so many consecutive encoder frames see, those of the margin included."""
        return self.subsampling * frames + self.overlap

    def seconds_heard(self, frames: int) -> float:
        """Seconds of audio that must have been heard for the first `frames` encoder frames, whole chunks of them."""
        return self.feature_shift * (self.features_of(frames) - self.margin) + self.right_seconds

    def emission_seconds(self, frame: float) -> float:
        """When what is emitted at encoder frame `frame`, from 0, is emitted: at its beginning, and `right` later."""
        return self.frame_shift * frame + self.right_seconds


# Log mel filter banks every 10 ms and convolutions that make one frame of four.
FILTER_BANKS = Framing(feature_dim=80, feature_step=160, subsampling=4, overlap=5, margin=1)
