"""Modules whose parameters will not change for a while, so that what follows from these alone is computed once.

A search calls the predictor and the joiner thousands of times with the same parameters. `constant` gives a copy of a
module in which every scaled tensor is replaced by its effective values. The copy knows nothing of later changes, and no
gradient flows through it. There are two kinds of copies:

    quick    has weights packed (`transducer_gn.model.packed`), and the share of each token in the first gates of an
             LSTM at hand, a third of what a step multiplies; `folded` makes one matrix of an LSTM's output layer and
             the joiner's projection. For CPUs
    fused    takes the fewest operations, the whole step of an LSTM in one call. For accelerators, where every launch
             has its price
"""

import copy
from collections.abc import Callable
from functools import cached_property, singledispatch
from typing import Generic, Literal, TypeVar, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional

from transducer_gn.lattice.joint import OutputLayer
from transducer_gn.model.joiner import Joiner
from transducer_gn.model.lstm import Lstm, LstmLayer, LstmState
from transducer_gn.model.packed import PackedWeight
from transducer_gn.model.precision import full_precision
from transducer_gn.model.predictor import LstmPredictor, State
from transducer_gn.model.scaled import ScaledTensor

Module = TypeVar("Module")
Made = TypeVar("Made")
Kind = Literal["quick", "fused"]


class ConstantTensor(nn.Module):
    """What stands for a scaled tensor: the same operations on its effective values."""

    def __init__(self, tensor: ScaledTensor) -> None:
        super().__init__()
        self.value = tensor().detach()

    def forward(self) -> Tensor:
        """See `ScaledTensor.forward`."""
        return self.value

    def product(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """See `ScaledTensor.product`."""
        return functional.linear(x, self.value, bias)

    def rows(self, ids: Tensor) -> Tensor:
        """See `ScaledTensor.rows`."""
        return functional.embedding(ids, self.value)


class PackedTensor(ConstantTensor):
    """The same, packed."""

    def __init__(self, tensor: ScaledTensor) -> None:
        super().__init__(tensor)
        self._packed = PackedWeight(self.value) if self.value.dim() == 2 else None

    def product(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """See `ScaledTensor.product`."""
        if self._packed is None:
            return super().product(x, bias)
        product = self._packed.product(x)
        return product if bias is None else product.add_(bias)


class PackedOutput(OutputLayer):
    """An output layer of packed weights."""

    @cached_property
    def _packed(self) -> PackedWeight:
        return PackedWeight(self.weight, self.bias)

    def logits(self, hidden: Tensor, out: Tensor | None = None) -> Tensor:
        """See `OutputLayer.logits`."""
        return self._packed.product(hidden) if out is None else super().logits(hidden, out)


class QuickLayer:
    """One layer of an LSTM whose gates stand in the order input, forget, output, cell, so that one call serves three.

    Attributes:
        weight: [4H, inputs]
        bias: [4H]
        inputs: both of them
        state: [4H, H] weights
    """

    def __init__(self, layer: LstmLayer) -> None:
        weights = (layer.input_weight(), layer.state_weight(), layer.bias())
        self.weight, state, self.bias = (_reordered(weight) for weight in weights)
        self.inputs, self.state = PackedWeight(self.weight, self.bias), PackedWeight(state)

    def step(self, gates: Tensor, hidden: Tensor, cell: Tensor, after: LstmState) -> None:
        """Write the states [B, H] after this layer's step.

        Args:
            gates: [B, 4H] the inputs' share of the gates; overwritten
            hidden: [B, H]
            cell: [B, H]
            after: hidden and cell states [B, H] to be written
        """
        dim = hidden.shape[1]
        gates = self.state.added_to(gates, hidden)
        opened, candidate = gates[:, : 3 * dim].sigmoid_(), gates[:, 3 * dim :].tanh_()
        torch.mul(opened[:, dim : 2 * dim], cell, out=after[1]).addcmul_(opened[:, :dim], candidate)
        torch.mul(torch.tanh(after[1], out=candidate), opened[:, 2 * dim :], out=after[0])


def _reordered(weight: Tensor) -> Tensor:
    """Weights [4H, ...] of gates in the order input, forget, cell, output, with the last two exchanged."""
    add, keep, candidate, show = weight.chunk(4)
    return torch.cat([add, keep, show, candidate])


class QuickLstmPredictor(nn.Module):
    """An LSTM predictor that has the share of each token in the gates of its first layer at hand."""

    def __init__(self, predictor: LstmPredictor) -> None:
        super().__init__()
        self.output_dim = predictor.output_dim
        self.initial_state = predictor.lstm.initial_state
        self._layers = [QuickLayer(layer) for layer in predictor.lstm.stack()]
        first = self._layers[0]
        self._gates = functional.linear(predictor.embedding.weight(), first.weight, first.bias)
        assert predictor.output.bias is not None  # it is made with one
        self.output = predictor.output.weight(), predictor.output.bias()

    @cached_property
    def _output(self) -> PackedWeight:
        return PackedWeight(*self.output)

    @full_precision
    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """See `Predictor.step`."""
        hidden, after = self.hidden(tokens, state)
        return self._output.product(hidden), after

    def hidden(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """What the output layer takes [n, H], and the state, after `tokens` [n]."""
        hiddens, cells = torch.empty_like(state[0]), torch.empty_like(state[1])
        gates = self._gates.index_select(0, tokens)
        for number, layer in enumerate(self._layers):
            if number > 0:
                gates = layer.inputs.product(hiddens[:, number - 1])
            layer.step(gates, state[0][:, number], state[1][:, number], (hiddens[:, number], cells[:, number]))
        return hiddens[:, -1], (hiddens, cells)


class FoldedReader(nn.Module):
    """A predictor whose output layer and the joiner's projection, with nothing between them, are one matrix.

    Args:
        predictor: reads tokens
        projection: [J, D] weights of the joiner's projection
    """

    def __init__(self, predictor: QuickLstmPredictor, projection: Tensor) -> None:
        super().__init__()
        self.initial_state = predictor.initial_state
        self._hidden = predictor.hidden
        exact, weight, bias = (part.cpu().double() for part in (projection, *predictor.output))
        self._projected = PackedWeight((exact @ weight).to(projection), (exact @ bias).to(projection))

    @full_precision
    def read(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """From `tokens` [n] and the state before them to projected outputs [n, J] and the state after them."""
        hidden, after = self._hidden(tokens, state)
        return self._projected.product(hidden), after


@singledispatch
def make_folded(predictor: object, projection: Tensor) -> FoldedReader | None:
    """A predictor with the joiner's projection [J, D] folded in; None for kinds of which nobody has said how."""
    return None


@make_folded.register
def _(predictor: LstmPredictor, projection: Tensor) -> FoldedReader | None:
    if type(predictor) is not LstmPredictor:
        return None
    return FoldedReader(QuickLstmPredictor(predictor), projection)


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
    """A joiner that has its output layer at hand."""

    _output_layer: OutputLayer

    @property
    def output_layer(self) -> OutputLayer:
        """See `Joiner.output_layer`."""
        return self._output_layer


def constant(part: Module, kind: Kind) -> Module:
    """A copy of a module whose parameters count as constants; what is no module is given back as it is.

    The quick copy of a module is kept, and given again for as long as torch knows of no change of its parameters.
    """
    if not isinstance(part, nn.Module):
        return part
    with torch.no_grad():
        if kind != "quick":
            return cast(Module, _copy(part, kind))
        return cast(Module, _keep(_kept, part, [part], lambda: _copy(part, kind)))


def folded(predictor: object, joiner: object) -> FoldedReader | None:
    """The quick copy of a predictor with a joiner's projection folded in, kept as others are; None if there is none."""
    if not (isinstance(predictor, nn.Module) and isinstance(joiner, Joiner)):
        return None
    projection = joiner.predictor_projection
    with torch.no_grad():
        return _keep(_folded, projection, [predictor, projection], lambda: make_folded(predictor, projection.weight()))


def _keep(
    kept: "WeakKeyDictionary[nn.Module, _Kept[Made]]", key: nn.Module, parts: list[nn.Module], make: Callable[[], Made]
) -> Made:
    """What was made of some modules, made anew if torch knows of a change of their parameters since."""
    tensors = [tensor for part in parts for tensor in (*part.parameters(), *part.buffers())]
    entry = kept.get(key)
    if entry is None or not entry.is_of(tensors):
        entry = kept[key] = _Kept(make(), tensors)
    return entry.made


class _Kept(Generic[Made]):
    """A copy and the tensors that it was made of.

    These are held on to, so that no others can take their place in memory.
    """

    def __init__(self, made: Made, tensors: list[Tensor]) -> None:
        self.made = made
        self._tensors = [tensor.detach() for tensor in tensors]
        self._versions = _versions(tensors)

    def is_of(self, tensors: list[Tensor]) -> bool:
        """Whether it was made of these tensors as they are now."""
        same = [mine.data_ptr() == other.data_ptr() for mine, other in zip(self._tensors, tensors, strict=False)]
        return len(tensors) == len(self._tensors) and all(same) and self._versions == _versions(tensors)


def _versions(tensors: list[Tensor]) -> list[int]:
    """How often tensors were changed; those of inference mode cannot be."""
    return [0 if tensor.is_inference() else tensor._version for tensor in tensors]


_kept: WeakKeyDictionary[nn.Module, _Kept[nn.Module]] = WeakKeyDictionary()
_folded: WeakKeyDictionary[nn.Module, _Kept[FoldedReader | None]] = WeakKeyDictionary()


def _copy(part: nn.Module, kind: Kind) -> nn.Module:
    """A new copy of a module."""
    if isinstance(part, ScaledTensor):
        return PackedTensor(part) if kind == "quick" else ConstantTensor(part)
    if isinstance(part, Lstm) and kind == "fused":
        return FusedLstm(part)
    if type(part) is LstmPredictor and kind == "quick":
        return QuickLstmPredictor(part)
    clone = copy.copy(part)
    clone._modules = {name: None if child is None else _copy(child, kind) for name, child in part._modules.items()}
    if type(part) is Joiner:
        clone.__class__ = ConstantJoiner
        assert isinstance(clone, ConstantJoiner)
        layer = PackedOutput if kind == "quick" else OutputLayer
        clone._output_layer = layer(part.output_weight.detach(), part.output_bias.detach())
    return clone
