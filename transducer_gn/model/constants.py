"""Modules whose parameters will not change for a while, so that what follows from these alone is computed once.

A search calls the predictor and the joiner thousands of times with the same parameters. `constant` gives a copy of a
module that shares its parameters, except that every scaled tensor is replaced by its effective values. The copy knows
nothing of later changes, and no gradient flows through it.

There are three kinds of copies:

    exact    gives the same numbers as the module, digit for digit: where this scales the rows that it multiplies
             instead of its weights, so does the copy. For training, which must not depend on how it is computed
    quick    leaves out what costs time for the sake of digits: for recognition on a CPU
    fused    multiplies all weights out and takes as few operations as possible, the whole step of an LSTM in one call:
             for accelerators, where every launch has its price
"""

import copy
from itertools import islice
from typing import Literal, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional

from transducer_gn.model.joiner import Joiner
from transducer_gn.model.lstm import Lstm, LstmState
from transducer_gn.model.precision import full_precision
from transducer_gn.model.predictor import LstmPredictor, State
from transducer_gn.model.scaled import ScaledTensor

# Products of fewer rows go other ways in the usual libraries and are rounded otherwise: a row of one product of four
# or more is the same, to the last digit, in every other.
FEWEST_ROWS = 4

Module = TypeVar("Module")
Kind = Literal["exact", "quick", "fused"]


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


class MultipliedTensor(ConstantTensor):
    """The same, always multiplied out."""

    def product(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """See `ScaledTensor.product`."""
        return functional.linear(x, self(), bias)


class QuickLstm(nn.Module):
    """An LSTM that leaves scaling to the matrix products and works in place."""

    def __init__(self, lstm: Lstm) -> None:
        super().__init__()
        self.initial_state = lstm.initial_state
        self.layers = nn.ModuleList(_copy(layer, "exact") for layer in lstm.layers)
        self._inputs = [_transposed(layer.input_weight) for layer in lstm.layers]
        self._states = [_transposed(layer.state_weight) for layer in lstm.layers]
        self._biases = [layer.bias().detach() for layer in lstm.layers]

    def step_from_gates(self, gates: Tensor, state: LstmState) -> tuple[Tensor, LstmState]:
        """See `Lstm.step_from_gates`; overwrites `gates` [B, 4H]."""
        hiddens, cells = torch.empty_like(state[0]), torch.empty_like(state[1])
        for number, (weight, scale) in enumerate(self._states):
            if number > 0:
                input_weight, input_scale = self._inputs[number]
                gates = torch.addmm(self._biases[number], hiddens[:, number - 1], input_weight, alpha=input_scale)
            gates.addmm_(state[0][:, number], weight, alpha=scale)
            add, keep, candidate, show = gates.chunk(4, dim=1)
            cell = torch.mul(keep.sigmoid_(), state[1][:, number], out=cells[:, number])
            cell.addcmul_(add.sigmoid_(), candidate.tanh_())
            torch.mul(cell.tanh(), show.sigmoid_(), out=hiddens[:, number])
        return hiddens[:, -1], (hiddens, cells)


def _transposed(tensor: ScaledTensor) -> tuple[Tensor, float]:
    """The stored weights [inputs, outputs], and their scale."""
    return tensor.value.detach().t(), tensor.scale().item()


class FusedLstm(nn.Module):
    """An LSTM that takes its steps over all layers in one call, which cuDNN has a kernel for."""

    def __init__(self, lstm: Lstm) -> None:
        super().__init__()
        self.initial_state = lstm.initial_state
        inputs = lstm.layers[0].input_weight.value
        with torch.device(inputs.device):
            # Of use only once: it lays weights out in memory as cuDNN wants them.
            flat = nn.LSTM(inputs.shape[1], lstm.dim, len(lstm.layers), dtype=inputs.dtype).requires_grad_(False)
        self._weights = [weight.detach() for layer in flat.all_weights for weight in layer]
        with torch.no_grad():
            for number, layer in enumerate(lstm.layers):
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


class ConstantLstmPredictor(LstmPredictor):
    """A predictor that remembers what each token contributes to the gates of its first layer.

    A search meets the same tokens again and again, so that up to a third of what a step multiplies is saved.
    """

    _gates: Tensor
    _fewest_rows: int
    _known: set[int]

    @full_precision
    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """See `Predictor.step`."""
        if len(tokens) < self._fewest_rows:
            return super().step(tokens, state)
        missing = set(tokens.tolist()) - self._known
        if missing:
            self._learn(missing)
        hidden, state = self.lstm.step_from_gates(self._gates.index_select(0, tokens), state)
        return self.output(hidden), state

    def _learn(self, tokens: set[int]) -> None:
        """Remember the gates of some tokens; of others too, if they would be too few rows for the usual rounding."""
        others = (token for token in range(len(self._gates)) if token not in tokens)
        rows = torch.tensor(
            [*tokens, *islice(others, max(0, self._fewest_rows - len(tokens)))], device=self._gates.device
        )
        self._gates.index_copy_(0, rows, self.lstm.layers[0].gates(self.embedding(rows)))
        self._known |= tokens


class ConstantJoiner(Joiner):
    """A joiner that has its output layer at hand."""

    _output_weight: Tensor
    _output_bias: Tensor

    @property
    def output_weight(self) -> Tensor:
        """See `Joiner.output_weight`."""
        return self._output_weight

    @property
    def output_bias(self) -> Tensor:
        """See `Joiner.output_bias`."""
        return self._output_bias


def constant(part: Module, kind: Kind) -> Module:
    """A copy of a module whose parameters count as constants; what is no module is given back as it is.

    The quick copy of a module in evaluation mode is kept, and given again for as long as torch knows of no change of
    its parameters.
    """
    if not isinstance(part, nn.Module):
        return part
    if kind != "quick" or part.training:
        return _copy(part, kind)
    state = [(parameter.data_ptr(), parameter._version) for parameter in part.parameters()]
    if part not in _kept or _kept[part][0] != state:
        _kept[part] = state, _copy(part, kind)
    return _kept[part][1]


_kept: WeakKeyDictionary[nn.Module, tuple[list[tuple[int, int]], nn.Module]] = WeakKeyDictionary()


def _copy(part: nn.Module, kind: Kind) -> nn.Module:
    """A new copy of a module."""
    if isinstance(part, ScaledTensor):
        return MultipliedTensor(part) if kind == "fused" else ConstantTensor(part)
    if isinstance(part, Lstm) and kind != "exact":
        return QuickLstm(part) if kind == "quick" else FusedLstm(part)
    clone = copy.copy(part)
    clone._modules = {name: _copy(child, kind) for name, child in part._modules.items()}
    if type(part) is LstmPredictor and kind != "fused":
        clone.__class__ = ConstantLstmPredictor
        clone._fewest_rows = FEWEST_ROWS if kind == "exact" else 1
        value = part.embedding.weight.value
        clone._gates, clone._known = value.new_empty(len(value), 4 * part.lstm.dim), set()
    if type(part) is Joiner:
        clone.__class__ = ConstantJoiner
        clone._output_weight, clone._output_bias = part.output_weight.detach(), part.output_bias.detach()
    return clone
