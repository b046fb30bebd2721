"""Invariant: a Conformer layer in evaluation is the sequence of its modules written out in float64 numpy."""

import numpy as np
import pytest
import torch
from model_oracles import array, depthwise_convolution, relative_attention, sigmoid, visible_to
from small_models import SMALL_ENCODER, shaken

from transducer_gn.config import EncoderConfig
from transducer_gn.model import conformer
from transducer_gn.model.attention import relative_positions
from transducer_gn.model.chunk import Chunk, visible_frames
from transducer_gn.model.conformer import ConformerLayer, Convolution, FeedForward
from transducer_gn.model.scaled import ScaledLinear

FRAMES = 9


def linear(x: np.ndarray, layer: ScaledLinear) -> np.ndarray:
    """A linear layer [T, D]."""
    return x @ array(layer.weight()).T + array(layer.bias())


def feed_forward(x: np.ndarray, module: FeedForward) -> np.ndarray:
    """A feed-forward module [T, D]."""
    hidden = linear(x, module.input)
    return linear(hidden * sigmoid(hidden - 1), module.output)


def attention(x: np.ndarray, layer: ConformerLayer, chunk: Chunk) -> np.ndarray:
    """The attention module [T, D]."""
    module = layer.attention
    width = module.heads * module.head_dim
    q, k, v = np.split(linear(x, module.input), 3, axis=1)
    q = q / np.sqrt(module.head_dim)
    visible = np.array([[visible_to(chunk.size, chunk.left, i, j) for j in range(len(x))] for i in range(len(x))])
    heads = []
    for start in range(0, width, module.head_dim):
        part = slice(start, start + module.head_dim)
        content, position = q + array(module.content_bias()), q + array(module.position_bias())
        weight = array(module.position.weight())[part]
        heads.append(relative_attention(content[:, part], position[:, part], k[:, part], v[:, part], weight, visible))
    return linear(np.concatenate(heads, axis=1), module.output)


def convolution(x: np.ndarray, module: Convolution) -> np.ndarray:
    """The convolution module [T, D]."""
    value, gate = np.split(linear(x, module.input), 2, axis=1)
    weight = array(module.depthwise())[:, 0, 0]
    hidden = depthwise_convolution(value * sigmoid(gate), weight, array(module.depthwise_bias()), module.future)
    return linear(hidden * sigmoid(hidden - 1), module.output)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("chunk", [Chunk(), Chunk(3, 3), Chunk(4, None)])
def test_a_layer_is_its_modules_written_out(causal: bool, chunk: Chunk) -> None:
    torch.manual_seed(9)
    config = EncoderConfig(**{**vars(SMALL_ENCODER), "causal": causal})
    layer = shaken(ConformerLayer(config)).double().eval()
    x = torch.randn(1, FRAMES, config.dim, dtype=torch.float64)
    sinusoids = relative_positions(FRAMES, FRAMES, config.dim, x.device).double()
    valid = torch.ones(1, FRAMES, dtype=torch.bool)
    visible = visible_frames(chunk, FRAMES, x.device).unsqueeze(0)
    output, _ = layer(x, layer.attention.project_positions(sinusoids), visible, valid, layer.empty_cache(x))

    y = array(x[0])
    y = y + feed_forward(y, layer.first_feedforward)
    y = y + attention(y, layer, chunk)
    y = y + convolution(y, layer.convolution)
    y = y + feed_forward(y, layer.second_feedforward)
    y = y / np.sqrt((y**2).mean(axis=1, keepdims=True) + np.exp(layer.norm.log_eps.item()))
    np.testing.assert_allclose(array(output[0]), y, atol=1e-6)


def test_both_layouts_of_the_depthwise_convolution_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(2, 12, 6), torch.randn(6, 1, 1, 5), torch.randn(6)
    handed_over = []
    convolve = conformer.functional.conv2d

    def noting(picture: torch.Tensor, *arguments: torch.Tensor, **settings: int) -> torch.Tensor:
        handed_over.append(picture.is_contiguous())
        return convolve(picture, *arguments, **settings)

    monkeypatch.setattr(conformer.functional, "conv2d", noting)
    here = conformer.depthwise(x, weight, bias)
    monkeypatch.setattr(conformer, "channels_last_is_quick", lambda x: False)
    there = conformer.depthwise(x, weight, bias)
    assert handed_over == [False, True]
    torch.testing.assert_close(here, there)
    # With the kernel's zeros to the left written out, this is a causal convolution of what follows them.
    oracle = [depthwise_convolution(array(row), array(weight)[:, 0, 0], array(bias), 0)[4:] for row in x]
    np.testing.assert_allclose(array(there), np.stack(oracle), atol=1e-5)
