"""Invariant: a factor on the samples is a constant on log energies; noise leaves ids and lengths alone."""

import random

import numpy as np
import torch

from transducer_gn.config import VolumeConfig
from transducer_gn.data.augmentation import change_volume, one_thread
from transducer_gn.data.features import fbank


def test_a_factor_on_samples_is_a_constant_on_features():
    samples = 0.1 * np.random.default_rng(0).standard_normal(16000).astype(np.float32)
    quiet, loud = (torch.from_numpy(fbank().extract(gain * samples, 16000)) for gain in (1.0, 3.0))
    settings = VolumeConfig(enabled=True, probability=1.0, scale_low=3.0, scale_high=3.0)
    changed = change_volume(quiet[None], settings, random.Random(0))[0]
    assert (changed - loud).abs().max() < 1e-3


def test_as_many_utterances_change_as_asked_for_each_by_its_own_factor():
    features = torch.zeros(400, 3, 2)
    settings = VolumeConfig(enabled=True, probability=0.25, scale_low=0.5, scale_high=2.0)
    changed = change_volume(features, settings, random.Random(1))
    assert (changed == changed[:, :1, :1]).all()
    factors = (changed[:, 0, 0] / 2).exp()
    assert 70 < int((factors != 1).sum()) < 130
    assert float(factors.min()) >= 0.5 and float(factors.max()) <= 2.0 and len(factors.unique()) > 70


def test_the_number_of_threads_comes_back():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
