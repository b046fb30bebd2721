"""Modules whose parameters will not change for a while, so that what follows from these alone is computed once.

A search calls the predictor and the joiner thousands of times with the same parameters. `constant` gives a copy of a
module that shares its parameters, except that every scaled tensor is replaced by its effective values. The copy knows
nothing of later changes, and no gradient flows through it.

On a CPU the copy gives the same numbers as the module, digit for digit: where this scales the rows that it multiplies
instead of its weights, so does the copy. For an accelerator, where every operation has its price, weights are always
multiplied out (`fused`), and an LSTM takes its step in one call.
"""

import copy
from typing import TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from transducer_gn.model.joiner import Joiner
from transducer_gn.model.lstm import Lstm, LstmState
from transducer_gn.model.scaled import ScaledTensor

Module = TypeVar("Module")


class ConstantTensor(nn.Module):
    """What stands for a scaled tensor: the same operations, with the scale and the effective values at hand."""

    def __init__(self, tensor: ScaledTensor) -> None:
        super().__init__()
        self.value = tensor.value.detach()
        self._scale = tensor.scale().detach()
        self._effective: Tensor | None = None

    def scale(self) -> Tensor:
        """See `ScaledTensor.scale`."""
        return self._scale

    def forward(self) -> Tensor:
        """See `ScaledTensor.forward`."""
        if self._effective is None:
            self._effective = self.value * self._scale
        return self._effective

    def product(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """See `ScaledTensor.product`."""
        if x.numel() < self.value.numel():
            return functional.linear(x * self._scale, self.value, bias)
        return functional.linear(x, self(), bias)

    def rows(self, ids: Tensor) -> Tensor:
        """See `ScaledTensor.rows`."""
        return functional.embedding(ids, self())


class FusedTensor(ConstantTensor):
    """The same, always multiplied out."""

    def product(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """See `ScaledTensor.product`."""
        return functional.linear(x, self(), bias)


class FusedLstm(nn.Module):
    """An LSTM that takes its steps over all layers in one call, which cuDNN has a kernel for."""

    def __init__(self, lstm: Lstm) -> None:
        super().__init__()
        self.initial_state = lstm.initial_state
        inputs = lstm.stack()[0].input_weight.value
        with torch.device(inputs.device):
            # Of use only once: it lays weights out in memory as cuDNN wants them.
            flat = nn.LSTM(inputs.shape[1], lstm.dim, len(lstm.layers), dtype=inputs.dtype).requires_grad_(False)
        self._weights = [weight.detach() for layer in flat.all_weights for weight in layer]
        with torch.no_grad():
            for number, layer in enumerate(lstm.stack()):
                bias = layer.bias()
                effective = [layer.input_weight(), layer.state_weight(), bias, torch.zeros_like(bias)]
                for weight, value in zip(self._weights[4 * number : 4 * number + 4], effective, strict=True):
                    weight.copy_(value)

    def step(self, x: Tensor, state: LstmState) -> tuple[Tensor, LstmState]:
        """See `Lstm.step`."""
        before = state[0].transpose(0, 1), state[1].transpose(0, 1)
        layers = len(before[0])
        output, hidden, cell = torch.lstm(x[None], before, self._weights, True, layers, 0.0, False, False, False)
        return output[0], (hidden.transpose(0, 1), cell.transpose(0, 1))


class ConstantJoiner(Joiner):
    """A joiner that has its biases at hand."""

    _output_bias: Tensor

    @property
    def output_bias(self) -> Tensor:
        """See `Joiner.output_bias`."""
        return self._output_bias


def constant(part: Module, fused: bool = False) -> Module:
    """A copy of a module whose parameters count as constants; what is no module is given back as it is.

    Args:
        part: the module
        fused: whether to take the least number of operations, at the price of other rounding
    """
    if not isinstance(part, nn.Module):
        return part
    return cast(Module, _constant(part, fused))


def _constant(part: nn.Module, fused: bool) -> nn.Module:
    """See `constant`."""
    if isinstance(part, ScaledTensor):
        return FusedTensor(part) if fused else ConstantTensor(part)
    if isinstance(part, Lstm) and fused:
        return FusedLstm(part)
    clone = copy.copy(part)
    clone._modules = {name: None if child is None else _constant(child, fused) for name, child in part._modules.items()}
    if isinstance(part, Joiner) and isinstance(clone, Joiner):
        clone.__class__ = ConstantJoiner
        clone._output_bias = part.output_bias.detach()
    return clone
