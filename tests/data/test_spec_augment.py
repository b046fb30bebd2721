"""Invariant: SpecAugment changes only an utterance's own frames, within the limits of its settings, and as drawn."""

import random

import pytest
import torch

from transducer_gn.config import SpecAugmentConfig
from transducer_gn.data.spec_augment import draw_stretch, mask, spec_augment, warp_time


def some_features(batch: int = 4, frames: int = 400) -> torch.Tensor:
    return torch.randn(batch, frames, 80, generator=torch.Generator().manual_seed(0))


def test_padding_and_input_stay_as_they_are():
    features, lengths = some_features(), torch.tensor([400, 300, 200, 10])
    before = features.clone()
    augmented = spec_augment(features, lengths, SpecAugmentConfig(probability=1.0), random.Random(0))
    assert torch.equal(features, before)
    for index, length in enumerate(lengths.tolist()):
        assert torch.equal(augmented[index, length:], features[index, length:])
        assert length < 20 or not torch.equal(augmented[index, :length], features[index, :length])


def test_the_draw_decides_everything():
    features, lengths, settings = some_features(), torch.tensor([400, 300, 200, 10]), SpecAugmentConfig()
    first, second, other = (spec_augment(features, lengths, settings, random.Random(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, second) and not torch.equal(first, other)


def test_probability_zero_changes_nothing():
    features = some_features()
    settings = SpecAugmentConfig(probability=0.0)
    assert torch.equal(spec_augment(features, torch.full((4,), 400), settings, random.Random(0)), features)


@pytest.mark.parametrize("frames", [1, 6, 50, 400, 1500])
def test_masks_stay_within_their_limits_and_hold_the_mean(frames):
    settings = SpecAugmentConfig()
    for seed in range(30):
        features = some_features(1, frames)[0]
        masked = features.clone()
        mask(masked, settings, random.Random(seed))
        changed = masked != features
        bands, stretches = changed.all(dim=0), changed.all(dim=1)
        assert int(bands.sum()) <= 2 * 26 or frames == 1
        assert int(stretches.sum()) <= 0.15 * frames
        assert torch.allclose(masked[changed], features.mean().expand(int(changed.sum())), atol=1e-5)


def test_a_warp_keeps_both_ends_and_the_order_of_frames():
    ramp = torch.arange(400.0).unsqueeze(1).repeat(1, 80)
    for seed in range(20):
        warped = ramp.clone()
        warp_time(warped, 80, random.Random(seed))
        assert (warped[1:] - warped[:-1] >= -1e-4).all()
        assert warped[0, 0] < 1 and warped[-1, 0] > 398
        assert (warped - ramp).abs().max() <= 81


def test_a_warp_moves_the_centre_to_its_target():
    draw = random.Random(3)
    centre = draw.randrange(81, 320)
    target = draw.randrange(centre - 80, centre + 81)
    ramp = torch.arange(400.0).unsqueeze(1)
    warp_time(ramp, 80, random.Random(3))
    assert float(ramp[target, 0]) == pytest.approx(centre, abs=1.5)


@pytest.mark.parametrize(("frames", "largest"), [(161, 80), (100, 80), (400, 0)])
def test_short_utterances_are_not_warped(frames, largest):
    features = some_features(1, frames)[0]
    warped = features.clone()
    warp_time(warped, largest, random.Random(0))
    assert torch.equal(warped, features)


def test_stretches_lie_inside_and_reach_both_ends():
    stretches = [draw_stretch(10, 4, random.Random(seed)) for seed in range(500)]
    assert {end - start for start, end in stretches} == {0, 1, 2, 3}
    assert min(start for start, _ in stretches) == 0 and max(end for _, end in stretches) == 10
