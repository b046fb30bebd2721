"""Invariant: scaled modules are the plain operations on their effective weights, whichever factor they scale, start at
the size they promise, and are stored at root mean square 0.1.
"""

import numpy as np
import pytest
import torch
from model_oracles import array
from small_models import shaken

from transducer_gn.model.scaled import ScaledBias, ScaledConv2d, ScaledEmbedding, ScaledLinear, ScaledTensor


@pytest.mark.parametrize("rows", [1, 3, 50])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_is_a_product_with_the_effective_weights(rows: int, bias: bool) -> None:
    """Few rows scale the input, many the weights: both give the same values and gradients."""
    torch.manual_seed(0)
    layer = shaken(ScaledLinear(6, 5, bias=bias), 0.3).double()
    x = torch.randn(2, rows, 6, dtype=torch.float64, requires_grad=True)
    weight = (layer.weight.value * layer.weight.log_scale.exp()).detach().requires_grad_()
    plain = x @ weight.t()
    if bias:
        plain = plain + (layer.bias.value * layer.bias.log_scale.exp()).detach()
    output = layer(x)
    torch.testing.assert_close(output, plain, rtol=1e-12, atol=1e-12)
    upstream = torch.randn_like(output)
    by_x, by_value, by_scale = torch.autograd.grad(
        output, [x, layer.weight.value, layer.weight.log_scale], upstream, retain_graph=True
    )
    plain_by_x, plain_by_weight = torch.autograd.grad(plain, [x, weight], upstream)
    torch.testing.assert_close(by_x, plain_by_x, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(by_value, plain_by_weight * layer.weight.scale().detach(), rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(by_scale, (plain_by_weight * weight.detach()).sum(), rtol=1e-11, atol=1e-11)


def test_embedding_looks_up_effective_rows() -> None:
    torch.manual_seed(0)
    table = shaken(ScaledEmbedding(7, 4), 0.3)
    effective = array(table.weight.value) * np.exp(table.weight.log_scale.item())
    ids = torch.tensor([[3, 0], [6, 3]])
    np.testing.assert_allclose(array(table(ids)), effective[ids.numpy()], rtol=1e-6)


def test_convolution_is_that_of_its_effective_weights() -> None:
    torch.manual_seed(0)
    layer = shaken(ScaledConv2d(2, 3, kernel=3, stride=2, padding=1), 0.3).double()
    x = torch.randn(1, 5, 4, 2).double()
    output = layer(x)
    weight = array(layer.weight.value) * np.exp(layer.weight.log_scale.item())
    bias = array(layer.bias.value) * np.exp(layer.bias.log_scale.item())
    padded = np.pad(array(x[0]), ((0, 0), (1, 1), (0, 0)))
    assert output.shape == (1, 2, 2, 3)
    for row, column, channel in np.ndindex(2, 2, 3):
        window = padded[2 * row : 2 * row + 3, 2 * column : 2 * column + 3].transpose(2, 0, 1)
        oracle = (window * weight[channel]).sum() + bias[channel]
        np.testing.assert_allclose(output[0, row, column, channel].item(), oracle, rtol=1e-11)


@pytest.mark.parametrize("rms", [0.01, 0.1, 1.0])
def test_tensors_act_at_one_size_and_are_stored_at_another(rms: float) -> None:
    torch.manual_seed(0)
    tensor = ScaledTensor(100, 100, rms=rms)
    assert tensor().square().mean().sqrt().item() == pytest.approx(rms, rel=0.03)
    assert tensor.value.square().mean().sqrt().item() == pytest.approx(0.1, rel=0.03)


def test_initial_variances() -> None:
    """A linear layer keeps the variance times its gain squared; embeddings have variance 1; biases are small."""
    torch.manual_seed(0)
    x = torch.randn(500, 300)
    assert ScaledLinear(300, 400, gain=0.25)(x).std().item() == pytest.approx(0.25, rel=0.05)
    assert ScaledEmbedding(100, 100)(torch.arange(100)).std().item() == pytest.approx(1.0, rel=0.03)
    assert ScaledBias(1000)().std().item() == pytest.approx(0.01, rel=0.1)
