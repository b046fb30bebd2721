"""Noise and volume of training utterances.

Everything is drawn from a generator that is seeded with the batch's identity, so that a batch is the same whichever
process makes it and whatever was made before.
"""

import math
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from lhotse import CutSet
from lhotse.cut import Cut

from transducer_gn.config import NoiseConfig, VolumeConfig


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread, as in a loader's workers: the last bit of a sum depends on how many add it up."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def mix_noise(cuts: CutSet, noise: Sequence[Cut], settings: NoiseConfig, draw: random.Random) -> CutSet:
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


def change_volume(features: torch.Tensor, settings: VolumeConfig, draw: random.Random) -> torch.Tensor:
    """Change the loudness of some utterances in `features` [B, T', F].

    A factor on the samples is a constant added to log energies, so this serves stored features as well as fresh ones.
    """
    factors = [
        draw.uniform(settings.scale_low, settings.scale_high) if draw.random() < settings.probability else 1.0
        for _ in range(len(features))
    ]
    return features + torch.tensor([2 * math.log(factor) for factor in factors]).view(-1, 1, 1)
