"""Invariant: a framing counts frames and seconds as the convolutions and the streams of its front end do."""

import pytest
import torch
from small_models import SMALL_ENCODER, SMALL_FRAMING

from transducer_gn.common.framing import FILTER_BANKS, Framing
from transducer_gn.model.subsampling import Subsampling

STACKED = Framing(feature_dim=864, feature_step=320, subsampling=4, right=5120)


@pytest.mark.parametrize("features", [5, 8, 9, 12, 13, 64, 69])
def test_frames_are_those_that_the_subsampling_gives(features):
    subsampling = Subsampling(SMALL_FRAMING.feature_dim, SMALL_ENCODER.dim).eval()
    frames = FILTER_BANKS.frames_within(features)
    window = torch.zeros(1, features, SMALL_FRAMING.feature_dim)
    if frames:
        assert subsampling.windows(window, torch.tensor([frames])).shape[1] == frames
    # Whole utterances have a zero frame on either side.
    assert FILTER_BANKS.frames_within(features + 2) == FILTER_BANKS.encoder_frames(features)


@pytest.mark.parametrize("frames", [1, 2, 16, 100])
def test_so_many_features_and_no_fewer_give_frames(frames):
    seen = FILTER_BANKS.features_seen(frames)
    assert FILTER_BANKS.frames_within(seen) == frames
    assert FILTER_BANKS.frames_within(seen - 1) == frames - 1
    # What a chunk has used up and the next one sees again is the same amount everywhere.
    assert FILTER_BANKS.features_seen(2 * frames) - FILTER_BANKS.features_used(frames) == seen


def test_times_are_those_of_filter_banks():
    assert FILTER_BANKS.frame_shift == 0.04
    assert FILTER_BANKS.samples(100) == 16000
    # The last of 16 frames sees features up to 4 * 15 + 7, which is the 68th.
    assert FILTER_BANKS.seconds_heard(16) == pytest.approx(0.68)
    assert FILTER_BANKS.frames_within(0) == FILTER_BANKS.frames_within(8) == 0


def test_filter_banks_count_as_their_convolutions_do() -> None:
    # Two convolutions of width 3 and stride 2, after one that keeps the number.
    formula = [max(0, ((count - 1) // 2 - 1) // 2) for count in range(300)]
    assert [FILTER_BANKS.encoder_frames(count) for count in range(300)] == formula
    assert FILTER_BANKS.encoder_lengths(torch.arange(300)).tolist() == formula
    assert (FILTER_BANKS.feature_shift, FILTER_BANKS.frame_shift) == (0.01, 0.04)
    assert [FILTER_BANKS.feature_frames(n) for n in (0, 79, 80, 160, 239, 240)] == [0, 0, 1, 1, 1, 2]


def test_a_chunk_of_filter_banks_needs_a_few_features_more() -> None:
    # Frame 15 sees features 59 to 67, of which 59 is number 60 with the zero vector in front.
    assert FILTER_BANKS.features_seen(16) == 69
    assert FILTER_BANKS.seconds_heard(16) == pytest.approx(0.68)
    assert FILTER_BANKS.emission_seconds(15) == pytest.approx(0.6)


def test_samples_are_counted_in_whole_numbers() -> None:
    # A seventh of all such seconds, multiplied by the sampling rate, come to a little more than the samples.
    for framing in (FILTER_BANKS, STACKED):
        for frames in range(16, 3200, 16):
            samples = framing.samples_heard(frames)
            assert samples == round(16000 * framing.seconds_heard(frames))
            assert framing.samples_heard(frames + 16) - samples == 16 * framing.subsampling * framing.feature_step


def test_stacked_vectors_overlap_nothing_and_come_later_by_the_right_context() -> None:
    assert [STACKED.encoder_frames(n) for n in (3, 4, 7, 8)] == [0, 1, 1, 2]
    assert STACKED.frame_shift == pytest.approx(0.08)
    assert STACKED.features_seen(8) == 32
    assert STACKED.seconds_heard(8) == pytest.approx(0.64 + 0.32)
    assert STACKED.emission_seconds(7) == pytest.approx(0.56 + 0.32)
