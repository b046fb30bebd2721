"""Invariant: frames are counted as the subsampling makes them, and audio as the windows of features lie."""

import pytest
import torch
from small_models import SMALL_ENCODER

from transducer_gn.common.framing import FILTER_BANKS
from transducer_gn.common.units import FRAME_SHIFT, encoder_frames
from transducer_gn.model.subsampling import Subsampling


@pytest.mark.parametrize("features", [5, 8, 9, 12, 13, 64, 69])
def test_frames_are_those_that_the_subsampling_gives(features):
    subsampling = Subsampling(SMALL_ENCODER.feature_dim, SMALL_ENCODER.dim).eval()
    frames = FILTER_BANKS.frames_within(features)
    window = torch.zeros(1, features, SMALL_ENCODER.feature_dim)
    if frames:
        assert subsampling.windows(window, torch.tensor([frames])).shape[1] == frames
    # Whole utterances have a zero frame on either side.
    assert FILTER_BANKS.frames_within(features + 2) == encoder_frames(features)


@pytest.mark.parametrize("frames", [1, 2, 16, 100])
def test_so_many_features_and_no_fewer_give_frames(frames):
    seen = FILTER_BANKS.features_seen(frames)
    assert FILTER_BANKS.frames_within(seen) == frames
    assert FILTER_BANKS.frames_within(seen - 1) == frames - 1
    # What a chunk has used up and the next one sees again is the same amount everywhere.
    assert FILTER_BANKS.features_seen(2 * frames) - FILTER_BANKS.features_used(frames) == seen


def test_times_are_those_of_filter_banks():
    assert FILTER_BANKS.frame_shift == FRAME_SHIFT == pytest.approx(0.04)
    assert FILTER_BANKS.samples(100) == 16000
    # The last of 16 frames sees features up to 4 * 15 + 7, which is the 68th.
    assert FILTER_BANKS.seconds_heard(16) == pytest.approx(0.68)
    assert FILTER_BANKS.frames_within(0) == FILTER_BANKS.frames_within(8) == 0
