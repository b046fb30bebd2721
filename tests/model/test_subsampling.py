"""Invariant: subsampling is its convolutions written out as loops, output i sees feature frames 4i - 1 to 4i + 7 and
nothing else, and the number of outputs is that of the formula.
"""

import numpy as np
import pytest
import torch
from model_oracles import array, subsampling
from small_models import shaken

from transducer_gn.common.framing import FILTER_BANKS
from transducer_gn.model.subsampling import Subsampling

BANDS, DIM = 9, 5


@pytest.fixture
def module() -> Subsampling:
    """A small one in float64 and evaluation mode."""
    torch.manual_seed(6)
    return shaken(Subsampling(BANDS, DIM)).double().eval()


@pytest.mark.parametrize("frames", [7, 10, 11, 15, 18])
def test_subsampling_is_its_convolutions_written_out(module: Subsampling, frames: int) -> None:
    features = torch.randn(1, frames, BANDS, generator=torch.Generator().manual_seed(frames)).double()
    output = module(features, torch.tensor([frames]))[0]
    paddings = (1, 0, 0)
    convolutions = [
        (array(layer.weight()), array(layer.bias()), layer.stride, padding)
        for layer, padding in zip(module.convolutions, paddings, strict=True)
    ]
    hidden = subsampling(array(features[0]), convolutions)
    linear = hidden @ array(module.output.weight()).T + array(module.output.bias())
    mean_square = (linear**2).mean(axis=1, keepdims=True)
    oracle = linear / np.sqrt(mean_square + np.exp(module.norm.log_eps.item()))
    assert len(output) == ((frames - 1) // 2 - 1) // 2
    np.testing.assert_allclose(array(output), oracle, atol=1e-12)


@pytest.mark.parametrize("changed", [0, 6, 7, 13, 22, 30])
def test_what_an_output_sees(module: Subsampling, changed: int) -> None:
    frames = 31
    features = torch.randn(1, frames, BANDS, generator=torch.Generator().manual_seed(0)).double()
    other = features.clone()
    other[0, changed] += 1.0
    lengths = torch.tensor([frames])
    differs = (module(features, lengths) != module(other, lengths)).any(dim=2)[0]
    outputs = int(FILTER_BANKS.encoder_lengths(lengths))
    assert differs.tolist() == [4 * i - 1 <= changed <= 4 * i + 7 for i in range(outputs)]


def test_windows_of_a_long_utterance_are_its_outputs(module: Subsampling) -> None:
    """Cut anywhere with the overlap, with the zero frames at both ends: what streaming relies on."""
    features = torch.randn(1, 43, BANDS, generator=torch.Generator().manual_seed(1)).double()
    whole = module(features, torch.tensor([43]))
    edged = torch.nn.functional.pad(features, (0, 0, 1, 1))
    for start, count in [(0, 3), (3, 1), (4, 6), (0, 10)]:
        window = edged[:, FILTER_BANKS.features_used(start) : FILTER_BANKS.features_seen(start + count)]
        outputs = module.windows(window, torch.tensor([count]))
        torch.testing.assert_close(outputs, whole[:, start : start + count], rtol=1e-12, atol=1e-12)


def test_padding_of_any_value_changes_nothing(module: Subsampling) -> None:
    """Not even in the last output of an utterance, which sees one frame beyond its end if its length is 4n + 3."""
    lengths = torch.tensor([31, 27, 26, 11, 7])
    features = torch.randn(5, 40, BANDS, generator=torch.Generator().manual_seed(2)).double()
    garbage = features.clone()
    for row, length in enumerate(lengths.tolist()):
        garbage[row, length:] = 1e4
    one, other = module(features, lengths), module(garbage, lengths)
    for row, (length, count) in enumerate(
        zip(lengths.tolist(), FILTER_BANKS.encoder_lengths(lengths).tolist(), strict=True)
    ):
        assert torch.equal(one[row, :count], other[row, :count])
        alone = module(features[row : row + 1, :length], lengths[row : row + 1])
        torch.testing.assert_close(one[row, :count], alone[0], rtol=1e-12, atol=1e-12)
