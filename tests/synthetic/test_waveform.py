"""Invariant: a blend holds both words alike, and how it is said is drawn before its label is known."""

import random

import numpy as np
import pytest

from transducer_gn.synthetic import waveform
from transducer_gn.synthetic.speakers import Speaker


def test_a_blend_holds_both_words_alike():
    draw = np.random.default_rng(0)
    first, second = (waveform.level(draw.standard_normal(n).astype(np.float32)) for n in (4000, 4400))
    mixed = waveform.blend(first, second, tilt=0.0)
    assert len(mixed) == 4200
    assert np.allclose(mixed, waveform.blend(second, first, tilt=0.0), atol=1e-6)
    correlations = [np.corrcoef(mixed, waveform.resample(word, 4200))[0, 1] for word in (first, second)]
    assert correlations[0] == pytest.approx(correlations[1], abs=0.05)
    assert min(correlations) > 0.6


def test_tilt_and_level_are_drawn_before_the_label_is_known():
    # Both labels of a pair come from one draw, so no property of the blend can depend on the label.
    speaker = Speaker("1", "m1", 230, 50)
    first, second = (waveform.draw_delivery(speaker, 6, random.Random(5)) for _ in range(2))
    assert first == second
    tilts = [waveform.draw_delivery(speaker, 6, random.Random(seed)).tilt for seed in range(400)]
    assert abs(np.mean(tilts)) < 0.01 and max(map(abs, tilts)) <= waveform.LARGEST_TILT


def test_silence_is_cut_off_and_levels_are_alike():
    word = np.sin(np.arange(800)).astype(np.float32)
    padded = np.concatenate([np.zeros(100), word, np.full(50, 0.001)]).astype(np.float32)
    assert np.array_equal(waveform.trim(padded), word[1:])
    for scale in (0.01, 3.0):
        assert np.sqrt(np.mean(waveform.level(scale * word) ** 2)) == pytest.approx(waveform.WORD_LEVEL, rel=1e-5)
    click = np.zeros(1000, dtype=np.float32)
    click[5] = 1
    assert np.abs(waveform.level(click)).max() == pytest.approx(waveform.LARGEST_PEAK)
