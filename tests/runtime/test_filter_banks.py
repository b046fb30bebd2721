"""Invariant: features of the runtime are those of training, whatever the pieces."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transducer_gn.data.features import fbank
from transducer_gn.runtime.filter_banks import OnlineFilterBanks

# Single precision sums over 257 frequencies of very different size, seen through a logarithm.
TOLERANCE = 5e-4


def in_pieces(audio: np.ndarray, size: int) -> np.ndarray:
    online = OnlineFilterBanks()
    pieces = [online.accept(audio[start : start + size]) for start in range(0, len(audio), size)]
    return np.concatenate([*pieces, online.finish()])


@settings(max_examples=40, deadline=None, derandomize=True)
@given(samples=st.integers(200, 4000), size=st.integers(1, 900), loudness=st.sampled_from([0.5, 1e-2, 1e-4]))
def test_pieces_equal_training(samples: int, size: int, loudness: float) -> None:
    audio = (loudness * np.random.default_rng(samples).standard_normal(samples)).astype(np.float32)
    wanted = torch.as_tensor(fbank().extract(audio[None], 16000)).numpy()
    found = in_pieces(audio, size)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCE)


def test_silence_is_as_in_training() -> None:
    audio = np.zeros(1600, dtype=np.float32)
    np.testing.assert_array_equal(in_pieces(audio, 500), torch.as_tensor(fbank().extract(audio[None], 16000)).numpy())


@pytest.mark.parametrize("samples", [0, 1, 119, 120, 199])
def test_less_than_half_a_window_gives_nothing(samples: int) -> None:
    assert in_pieces(np.zeros(samples, dtype=np.float32), 50).shape == (0, 80)
