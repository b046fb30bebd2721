"""What happens to training utterances on their way into a batch: noise, volume, SpecAugment.

Everything drawn here is drawn from generators that are seeded with the batch's identity, so that a batch is the same
whichever process makes it and whatever was made before.
"""

import math
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.dataset import SpecAugment

from transducer_gn.data.settings import NoiseSettings, SpecAugmentSettings, VolumeSettings


@contextmanager
def seeded_generators(seed: int) -> Iterator[None]:
    """Seed the global generators of Python, numpy and torch; afterwards they are as they were.

    lhotse's SpecAugment draws from all three, and with no workers it runs inside the training process.
    """
    python_state, numpy_state, torch_state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    # Not torch.manual_seed, which would also seed every GPU.
    torch.default_generator.manual_seed(seed % 2**63)
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        torch.set_rng_state(torch_state)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread, as it does in a loader's workers: the last bit of a sum depends on how many add it up."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def mix_noise(cuts: CutSet, noise: Sequence[Cut], settings: NoiseSettings, draw: random.Random) -> CutSet:
    """Mix a random stretch of noise into some of `cuts`; their ids and durations stay."""
    # As many candidates as can be needed: lhotse would otherwise shuffle the whole noise corpus for every batch.
    candidates = CutSet.from_cuts(draw.choice(noise) for _ in range(len(cuts)))
    return cuts.mix(
        candidates,
        snr=(settings.snr_low, settings.snr_high),
        mix_prob=settings.probability,
        preserve_id="left",
        seed=draw,
        random_mix_offset=True,
    ).to_eager()


def change_volume(features: torch.Tensor, settings: VolumeSettings, draw: random.Random) -> torch.Tensor:
    """Change the loudness of some utterances in `features` [B, T', F].

    A factor on the samples is a constant added to log energies, so this serves stored features as well as fresh ones.
    """
    factors = [
        draw.uniform(settings.scale_low, settings.scale_high) if draw.random() < settings.probability else 1.0
        for _ in range(len(features))
    ]
    return features + torch.tensor([2 * math.log(factor) for factor in factors]).view(-1, 1, 1)


def spec_augment(settings: SpecAugmentSettings) -> SpecAugment:
    """Return lhotse's SpecAugment with our settings."""
    return SpecAugment(
        time_warp_factor=settings.time_warp,
        num_feature_masks=settings.frequency_masks,
        features_mask_size=settings.frequency_mask_size,
        num_frame_masks=settings.time_masks,
        frames_mask_size=settings.time_mask_size,
        max_frames_mask_fraction=settings.time_mask_share,
        p=settings.probability,
    )
