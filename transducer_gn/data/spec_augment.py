"""SpecAugment: warps in time, masks over frequencies and masks over time.

The distributions are those of lhotse's implementation with icefall's settings. This one draws from a generator that it
is given, warps along time only, and takes an utterance's own length and mean instead of those of the padded batch;
it is several times faster, which matters when small models train on few cores.
"""

import math
import random

import torch

from transducer_gn.config import SpecAugmentConfig


def spec_augment(
    features: torch.Tensor, lengths: torch.Tensor, settings: SpecAugmentConfig, draw: random.Random
) -> torch.Tensor:
    """Return `features` [B, T', F] warped and masked; what lies beyond `lengths` [B] stays as it is."""
    features = features.clone()
    for row, length in enumerate(lengths.tolist()):
        frames = features[row, :length]
        if draw.random() < settings.probability:
            warp_time(frames, settings.time_warp, draw)
        if draw.random() < settings.probability:
            mask(frames, settings, draw)
    return features


def warp_time(frames: torch.Tensor, largest: int, draw: random.Random) -> None:
    """Move a random frame of `frames` [T, F] by up to `largest` frames, stretching one side and squeezing the other."""
    length = len(frames)
    if largest < 1 or length <= 2 * largest + 1:
        return
    centre = draw.randrange(largest + 1, length - largest)
    target = draw.randrange(centre - largest, centre + largest + 1)
    before, after = torch.arange(target), torch.arange(length - target)
    # Position i of n new frames lies at (i + 1/2) m / n - 1/2 of m old ones.
    left = ((before + 0.5) * (centre / max(1, target)) - 0.5).clamp(0, centre - 1)
    right = ((after + 0.5) * ((length - centre) / (length - target)) - 0.5).clamp(0, length - centre - 1) + centre
    source = torch.cat([left, right])
    lower = source.floor().long()
    upper = (lower + 1).clamp(max=length - 1)
    frames.copy_(torch.lerp(frames[lower], frames[upper], (source - lower).unsqueeze(1)))


def mask(frames: torch.Tensor, settings: SpecAugmentConfig, draw: random.Random) -> None:
    """Overwrite random bands and stretches of `frames` [T, F] with their mean."""
    length, width = frames.shape
    value = frames.mean()
    for _ in range(settings.frequency_masks):
        start, end = draw_stretch(width, settings.frequency_mask_size, draw)
        frames[:, start:end] = value
    budget = settings.time_mask_share * length
    count = min(settings.time_masks, math.ceil(budget / settings.time_mask_size))
    for _ in range(count):
        start, end = draw_stretch(length, min(settings.time_mask_size, int(budget / count)), draw)
        frames[start:end] = value


def draw_stretch(length: int, limit: int, draw: random.Random) -> tuple[int, int]:
    """Return start and end of a random stretch of fewer than `limit` places out of `length`."""
    size = draw.randrange(max(1, min(limit, length)))
    start = draw.randrange(length - size + 1)
    return start, start + size
