"""Invariant: attention with relative positions is the double loop over queries and keys, with and without gradients,
with and without a memory of the past, and never NaN.
"""

import numpy as np
import pytest
import torch
from model_oracles import array, relative_attention
from small_models import shaken
from torch import Tensor

from transducer_gn.model.attention import RelativeAttention, attend, relative_positions

DIM, WIDTH, HEADS = 6, 8, 2


@pytest.fixture
def attention() -> RelativeAttention:
    """A small one in float64."""
    torch.manual_seed(4)
    return shaken(RelativeAttention(DIM, WIDTH, HEADS), 0.3).double()


def positions_of(attention: RelativeAttention, queries: int, keys: int) -> Tensor:
    """Projected positions in float64."""
    return attention.project_positions(relative_positions(queries, keys, DIM, torch.device("cpu")).double())


def oracle(attention: RelativeAttention, x: np.ndarray, visible: np.ndarray, queries: int) -> np.ndarray:
    """Outputs [queries, D] for the last of the frames `x` [K, D] of one utterance."""
    projected = x @ array(attention.input.weight()).T + array(attention.input.bias())
    q, k, v = projected[-queries:, :WIDTH], projected[:, WIDTH : 2 * WIDTH], projected[:, 2 * WIDTH :]
    q = q / np.sqrt(WIDTH / HEADS)
    heads = []
    for head in range(HEADS):
        part = slice(head * WIDTH // HEADS, (head + 1) * WIDTH // HEADS)
        heads.append(
            relative_attention(
                (q + array(attention.content_bias()))[:, part],
                (q + array(attention.position_bias()))[:, part],
                k[:, part],
                v[:, part],
                array(attention.position.weight())[part],
                visible,
            )
        )
    return np.concatenate(heads, axis=1) @ array(attention.output.weight()).T + array(attention.output.bias())


def random_visibility(batch: int, queries: int, keys: int) -> Tensor:
    """Random masks in which every query sees at least itself."""
    visible = torch.rand(batch, queries, keys, generator=torch.Generator().manual_seed(1)) < 0.6
    return visible | torch.eye(keys, dtype=torch.bool)[-queries:]


@pytest.mark.parametrize("with_gradients", [True, False])
def test_attention_is_the_double_loop(attention: RelativeAttention, with_gradients: bool) -> None:
    x = torch.randn(3, 7, DIM, generator=torch.Generator().manual_seed(2)).double()
    visible = random_visibility(3, 7, 7)
    with torch.set_grad_enabled(with_gradients):
        output, _ = attention(x, positions_of(attention, 7, 7), visible, x.new_zeros(3, 0, 2 * WIDTH))
    for b in range(3):
        np.testing.assert_allclose(array(output[b]), oracle(attention, array(x[b]), visible[b].numpy(), 7), atol=1e-6)


@pytest.mark.parametrize("with_gradients", [True, False])
@pytest.mark.parametrize(("past", "queries"), [(4, 3), (6, 1), (1, 6)])
def test_memory_stands_for_past_frames(
    attention: RelativeAttention, with_gradients: bool, past: int, queries: int
) -> None:
    keys = past + queries
    x = torch.randn(2, keys, DIM, generator=torch.Generator().manual_seed(3)).double()
    visible = random_visibility(2, queries, keys)
    nothing = x.new_zeros(2, 0, 2 * WIDTH)
    everything = torch.ones(2, 1, past, dtype=torch.bool)
    with torch.set_grad_enabled(with_gradients):
        _, memory = attention(x[:, :past], positions_of(attention, past, past), everything, nothing)
        output, _ = attention(x[:, past:], positions_of(attention, queries, keys), visible, memory)
    for b in range(2):
        expected = oracle(attention, array(x[b]), visible[b].numpy(), queries)
        np.testing.assert_allclose(array(output[b]), expected, atol=1e-6)


@pytest.mark.parametrize("with_gradients", [True, False])
def test_a_query_that_sees_nothing_gets_a_finite_vector(with_gradients: bool) -> None:
    torch.manual_seed(0)
    queries, keys, positions = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 5), torch.randn(2, 7, 5)
    visible = torch.ones(3, 4, 4, dtype=torch.bool)
    visible[1, 2] = False
    with torch.set_grad_enabled(with_gradients):
        blinded = attend(queries, queries, keys, keys, positions, visible)
        seeing = attend(queries, queries, keys, keys, positions, torch.ones_like(visible))
    assert blinded.isfinite().all()
    changed = (blinded != seeing).any(dim=3).any(dim=0)
    assert changed.nonzero().tolist() == [[1, 2]]


def test_gradients_are_those_of_the_definition(attention: RelativeAttention) -> None:
    """Numerical differences of the same function check the relative shift and the mask of the training path."""
    x = torch.randn(1, 4, DIM, generator=torch.Generator().manual_seed(5)).double().requires_grad_()
    visible = random_visibility(1, 4, 4)
    sinusoids = relative_positions(4, 4, DIM, x.device).double()
    parameters = dict(attention.named_parameters())

    def run(x: Tensor, *values: Tensor) -> Tensor:
        module = dict(zip(parameters, values, strict=True))
        positions = torch.func.functional_call(
            Projector(attention), {f"attention.{name}": value for name, value in module.items()}, (sinusoids,)
        )
        nothing = x.new_zeros(1, 0, 2 * WIDTH)
        return torch.func.functional_call(attention, module, (x, positions, visible, nothing))[0]

    assert torch.autograd.gradcheck(run, (x, *parameters.values()))


class Projector(torch.nn.Module):
    """`project_positions` as a module's forward."""

    def __init__(self, attention: RelativeAttention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, sinusoids: Tensor) -> Tensor:
        """Projected positions."""
        return self.attention.project_positions(sinusoids)
