"""Invariant: encoder frames of an utterance are those that two convolutions of width 3 and stride 2 leave."""

import pytest

from transducer_gn.common.units import encoder_frames


@pytest.mark.parametrize(("frames", "expected"), [(0, 0), (6, 0), (7, 1), (11, 2), (100, 24)])
def test_frames_of_the_default_subsampling(frames, expected):
    assert encoder_frames(frames) == expected
