"""Features of audio in pieces equal those of the whole recording, whatever the pieces."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transducer_gn.data.features import fbank
from transducer_gn.recognition.filter_banks import OnlineFbank

# Sums over 512 samples in another order, seen through a logarithm.
TOLERANCE = 2e-5


def in_pieces(audio: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    """Features of pieces of the given sizes, over and over."""
    online = OnlineFbank()
    features, start, number = [], 0, 0
    while start < len(audio):
        size = sizes[number % len(sizes)]
        online.accept(audio[start : start + size])
        features.append(online.take())
        start, number = start + size, number + 1
    online.finish()
    return torch.cat([*features, online.take()])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(samples=st.integers(200, 4000), sizes=st.lists(st.integers(1, 900), min_size=1, max_size=4))
def test_pieces_equal_the_whole(samples, sizes):
    audio = 0.1 * torch.randn(samples, generator=torch.Generator().manual_seed(samples))
    whole = torch.as_tensor(fbank().extract(audio[None], 16000))
    torch.testing.assert_close(in_pieces(audio, sizes), whole, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("samples", [0, 1, 119, 120, 199])
def test_less_than_half_a_window_gives_nothing(samples):
    assert len(in_pieces(torch.zeros(samples), [50])) == 0
