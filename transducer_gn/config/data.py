"""Settings of data: what to train on, how it becomes batches, how features are stored."""

from dataclasses import dataclass, field
from typing import Literal

from transducer_gn.common.errors import require, require_positive
from transducer_gn.config.fields import may_change


@dataclass(frozen=True)
class SpecAugmentConfig:
    """Masks and warps on training features; the defaults are icefall's.

    Attributes:
        enabled: whether to use it
        time_warp: largest shift in frames of a warp in time; below 1 there is none
        frequency_masks: number of masks over frequencies
        frequency_mask_size: largest width of such a mask, in mel bins
        time_masks: largest number of masks over time
        time_mask_size: largest width of such a mask, in feature frames
        time_mask_share: largest share of frames that may be masked
        probability: how often an utterance is warped, and how often masked
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
class NoiseConfig:
    """Noise mixed into training utterances, from the corpus's noise manifest.

    Attributes:
        enabled: whether to mix noise in; needs `prepare.sh --musan`
        probability: share of utterances with noise
        snr_low: lowest signal-to-noise ratio, in dB
        snr_high: highest signal-to-noise ratio, in dB
    """

    enabled: bool = False
    probability: float = 0.5
    snr_low: float = 10.0
    snr_high: float = 20.0


@dataclass(frozen=True)
class VolumeConfig:
    """Random loudness of training utterances.

    Attributes:
        enabled: whether to change it
        probability: share of utterances changed
        scale_low: smallest factor on the samples
        scale_high: largest factor on the samples
    """

    enabled: bool = False
    probability: float = 0.5
    scale_low: float = 0.125
    scale_high: float = 2.0


@dataclass(frozen=True)
class BatchConfig:
    """How utterances become batches.

    Attributes:
        max_duration: seconds of audio in a batch, padding included: the only control of its size
        num_buckets: utterances of similar length are batched together; into so many classes of length
        buffer_size: utterances held in memory to shuffle and to choose batches from
        shar_buffer_size: the same for each worker that reads from Shar, where features lie in memory, too
        min_duration: shorter utterances are left out of training, in seconds
        max_duration_of_utterance: longer utterances are left out of training, in seconds
        max_token_density: utterances with more tokens than this times their encoder frames are left out of training:
            so many cannot have been said in that time, and their lattices are large
        on_the_fly: compute features from audio in the workers instead of reading stored ones
        num_workers: processes that load batches; 0 loads them in the training process. Batches do not depend on it.
        seed: order, noise, volume and masks depend on it, on the epoch and on the batch's number, and on nothing else
        spec_augment: masks and warps
        noise: noise
        volume: loudness
        speeds: whoever trains a pretrained front end along hears every utterance at one of these speeds, drawn anew
            in every epoch, such as [0.9,1,1.1]; none for its own. Stored features have copies instead (prepare.sh
            --speed-factors)
    """

    max_duration: float = 200.0
    num_buckets: int = 30
    buffer_size: int = 20000
    shar_buffer_size: int = 2000
    min_duration: float = 0.5
    max_duration_of_utterance: float = 20.0
    max_token_density: int = 1
    on_the_fly: bool = False
    num_workers: int = may_change(2)
    seed: int = 0
    spec_augment: SpecAugmentConfig = field(default_factory=SpecAugmentConfig)
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    volume: VolumeConfig = field(default_factory=VolumeConfig)
    speeds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        section = "data.batches"
        # YAML and checkpoints have lists.
        object.__setattr__(self, "speeds", tuple(self.speeds))
        for speed in self.speeds:
            require(0.5 <= speed <= 2, f"{section}.speeds", f"must be from 0.5 to 2, not {speed}")
        names = "max_duration max_duration_of_utterance max_token_density num_buckets buffer_size shar_buffer_size"
        require_positive(section, **{name: getattr(self, name) for name in names.split()})
        for name in ("num_workers", "min_duration"):
            value = getattr(self, name)
            require(value >= 0, f"{section}.{name}", f"must be 0 or more, not {value}")


@dataclass(frozen=True)
class StorageConfig:
    """How features are stored.

    Attributes:
        tick_power: features are rounded to multiples of 2 ** tick_power. At -10 they stay within 1e-3 of the exact
            ones; -5, as icefall stores them, takes a third less space.
    """

    tick_power: int = -10


@dataclass(frozen=True)
class DataConfig:
    """What to train and validate on.

    Attributes:
        folder: what prepare.sh made
        token_model: kind of the token model, as given to prepare.sh
        batches: how utterances become batches
        shar: read training data from the folder's Shar export
    """

    folder: str = may_change("data/mini")
    token_model: Literal["unigram", "bpe"] = "unigram"
    batches: BatchConfig = field(default_factory=BatchConfig)
    shar: bool = False
