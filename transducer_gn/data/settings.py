"""Settings of batches."""

from dataclasses import dataclass, field

from transducer_gn.errors import UserError


@dataclass(frozen=True)
class SpecAugmentSettings:
    """Masks and warps on training features; the defaults are icefall's.

    Attributes:
        enabled: Whether to use it.
        time_warp: Largest shift in frames of a warp in time; below 1 there is none.
        frequency_masks: Number of masks over frequencies.
        frequency_mask_size: Largest width of such a mask, in mel bins.
        time_masks: Largest number of masks over time.
        time_mask_size: Largest width of such a mask, in feature frames.
        time_mask_share: Largest share of frames that may be masked.
        probability: How often an utterance is warped, and how often masked.
    """

    enabled: bool = True
    time_warp: int = 80
    frequency_masks: int = 2
    frequency_mask_size: int = 27
    time_masks: int = 10
    time_mask_size: int = 100
    time_mask_share: float = 0.15
    probability: float = 0.9


@dataclass(frozen=True)
class NoiseSettings:
    """Noise mixed into training utterances, from the corpus's noise manifest.

    Attributes:
        enabled: Whether to mix noise in; needs `prepare.sh --musan`.
        probability: Share of utterances with noise.
        snr_low: Lowest signal-to-noise ratio, in dB.
        snr_high: Highest signal-to-noise ratio, in dB.
    """

    enabled: bool = False
    probability: float = 0.5
    snr_low: float = 10.0
    snr_high: float = 20.0


@dataclass(frozen=True)
class VolumeSettings:
    """Random loudness of training utterances.

    Attributes:
        enabled: Whether to change it.
        probability: Share of utterances changed.
        scale_low: Smallest factor on the samples.
        scale_high: Largest factor on the samples.
    """

    enabled: bool = False
    probability: float = 0.5
    scale_low: float = 0.125
    scale_high: float = 2.0


@dataclass(frozen=True)
class BatchSettings:
    """How utterances become batches.

    Attributes:
        max_duration: Seconds of audio in a batch, padding included: the only control of its size.
        num_buckets: Utterances of similar length are batched together; into so many classes of length.
        buffer_size: Utterances held in memory to shuffle and to choose batches from.
        shar_buffer_size: The same for each worker that reads from Shar, where features lie in memory, too.
        min_duration: Shorter utterances are left out of training, in seconds.
        max_duration_of_utterance: Longer utterances are left out of training, in seconds.
        max_tokens_per_frame: Utterances with more tokens than this times their encoder frames are left out of
            training: the lattice has no path for them.
        on_the_fly: Compute features from audio in the workers instead of reading stored ones.
        num_workers: Processes that load batches; 0 loads them in the training process. Batches do not depend on it.
        seed: Order, noise, volume and masks depend on it, on the epoch and on the batch's number, and on nothing else.
        spec_augment: Masks and warps.
        noise: Noise.
        volume: Loudness.
    """

    max_duration: float = 200.0
    num_buckets: int = 30
    buffer_size: int = 20000
    shar_buffer_size: int = 2000
    min_duration: float = 0.5
    max_duration_of_utterance: float = 20.0
    max_tokens_per_frame: int = 1
    on_the_fly: bool = False
    num_workers: int = 2
    seed: int = 0
    spec_augment: SpecAugmentSettings = field(default_factory=SpecAugmentSettings)
    noise: NoiseSettings = field(default_factory=NoiseSettings)
    volume: VolumeSettings = field(default_factory=VolumeSettings)

    def __post_init__(self) -> None:
        lengths = ("max_duration", "max_duration_of_utterance", "max_tokens_per_frame")
        for name in (*lengths, "num_buckets", "buffer_size", "shar_buffer_size"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} must be more than 0, not {getattr(self, name)}")
        if self.num_workers < 0 or self.min_duration < 0:
            raise UserError("num_workers and min_duration must not be negative")
