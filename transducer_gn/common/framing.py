"""How time is cut: samples into feature frames, feature frames into encoder frames. The only place that counts them.

A front end is described by one `Framing`, which its encoder carries as `encoder.framing`; streams, word times and the
times of a display ask it and know no numbers of their own.
"""

from dataclasses import dataclass

from transducer_gn.common.units import FEATURE_SHIFT, SAMPLING_RATE, SUBSAMPLING, SUBSAMPLING_OVERLAP


@dataclass(frozen=True)
class Framing:
    """The time of one front end.

    Attributes:
        sampling_rate: samples per second
        feature_shift: seconds from one feature frame to the next
        subsampling: feature frames per encoder frame
        overlap: how many more feature frames than that an encoder frame sees. The first of them lies before the
            frame's own, so that a stream begins with one feature frame of padding
    """

    sampling_rate: int = SAMPLING_RATE
    feature_shift: float = FEATURE_SHIFT
    subsampling: int = SUBSAMPLING
    overlap: int = SUBSAMPLING_OVERLAP

    @property
    def frame_shift(self) -> float:
        """Seconds from one encoder frame to the next."""
        return self.feature_shift * self.subsampling

    def samples(self, features: int) -> int:
        """Samples that so many feature frames stand for."""
        return features * round(self.sampling_rate * self.feature_shift)

    def features_used(self, frames: int) -> int:
        """Feature frames that nothing needs any more once so many encoder frames are there."""
        return self.subsampling * frames

    def features_seen(self, frames: int) -> int:
        """Feature frames, padding included, that so many successive encoder frames see."""
        return self.features_used(frames) + self.overlap

    def frames_within(self, features: int) -> int:
        """Encoder frames that see no more than so many successive feature frames, padding included."""
        return max(0, (features - self.overlap) // self.subsampling)

    def seconds_heard(self, frames: int) -> float:
        """Seconds of audio that must have come before the first so many encoder frames can be there."""
        return self.feature_shift * (self.features_seen(frames) - 1)


FILTER_BANKS = Framing()
