"""An LSTM of scaled tensors over sequences, over single steps, and over prefix trees.

The three agree. Over a tree, each node's state follows from its parent's, so that a prefix that many sequences
share is computed once; nodes of one depth run as one batch.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from transducer_gn.common import quick
from transducer_gn.model.packed import PackedWeight
from transducer_gn.model.scaled import ScaledBias, ScaledTensor

# The hidden and cell states, each [B, layers, H].
LstmState = tuple[Tensor, Tensor]


class LstmLayer(nn.Module):
    """The weights of one layer; gates in the order input, forget, cell, output.

    `forget_bias` is what the forget gates are biased by before anything is learnt. It is not a parameter: the
    optimiser would soon wear it down.
    """

    bias_offsets: Tensor

    def __init__(self, inputs: int, dim: int, forget_bias: float) -> None:
        super().__init__()
        # The usual initial distribution, uniform on +-dim^-0.5, has this root mean square.
        rms = (3 * dim) ** -0.5
        self.input_weight = ScaledTensor(4 * dim, inputs, rms=rms)
        self.state_weight = ScaledTensor(4 * dim, dim, rms=rms)
        self.learnt_bias = ScaledBias(4 * dim)
        offsets = torch.tensor([0.0, forget_bias, 0.0, 0.0]).repeat_interleave(dim)
        self.register_buffer("bias_offsets", offsets, persistent=False)

    def bias(self) -> Tensor:
        """The biases [4H] of the gates as they act."""
        return self.learnt_bias() + self.bias_offsets

    def step(self, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """From input `x` [B, inputs] and states [B, H] to the next states [B, H]."""
        gates = self.input_weight.product(x, self.bias()) + self.state_weight.product(hidden)
        add, keep, candidate, show = gates.chunk(4, dim=-1)
        cell = keep.sigmoid() * cell + add.sigmoid() * candidate.tanh()
        return show.sigmoid() * cell.tanh(), cell


class Lstm(nn.Module):
    """Several LSTM layers of width `dim`."""

    def __init__(self, inputs: int, dim: int, layers: int, forget_bias: float = 0.0) -> None:
        super().__init__()
        self.dim = dim
        self.layers = nn.ModuleList(
            LstmLayer(inputs if layer == 0 else dim, dim, forget_bias) for layer in range(layers)
        )

    def stack(self) -> list[LstmLayer]:
        """The layers, first to last."""
        return [layer for layer in self.layers if isinstance(layer, LstmLayer)]

    def initial_state(self, batch: int) -> LstmState:
        """Zero states, each [batch, layers, H]."""
        state = self.stack()[0].bias_offsets.new_zeros(batch, len(self.layers), self.dim)
        return state, state.clone()

    def step(self, x: Tensor, state: LstmState) -> tuple[Tensor, LstmState]:
        """From `x` [B, inputs] and the state before it to the output [B, H] and the state after it."""
        hiddens, cells = [], []
        for layer, hidden, cell in zip(self.stack(), state[0].unbind(1), state[1].unbind(1), strict=True):
            x, cell = layer.step(x, hidden, cell)
            hiddens.append(x)
            cells.append(cell)
        return x, (torch.stack(hiddens, dim=1), torch.stack(cells, dim=1))

    def sequence(self, x: Tensor) -> Tensor:
        """Outputs [B, U, H] at every position of `x` [B, U, inputs], from the initial state on."""
        weights = []
        for layer in self.stack():
            bias = layer.bias()
            weights += [layer.input_weight(), layer.state_weight(), bias, torch.zeros_like(bias)]
        state = tuple(part.transpose(0, 1) for part in self.initial_state(len(x)))
        return torch.lstm(x, state, weights, True, len(self.layers), 0.0, False, False, True)[0]

    def tree(self, x: Tensor, parents: Tensor, depths: Tensor) -> Tensor:
        """Outputs [P, H] at the nodes of a forest: node p continues from the state at node `parents[p]`.

        `x` [P, inputs] are the inputs at the nodes; `parents` [P] is -1 and `depths` [P] is 0 at roots.
        """
        order = torch.argsort(depths, stable=True)
        places = torch.empty_like(order)
        places[order] = torch.arange(len(order), device=order.device)
        sorted_parents = parents[order]
        sorted_parents = torch.where(sorted_parents < 0, -1, places[sorted_parents])
        level_sizes = torch.bincount(depths).tolist()
        x = x[order]
        for layer in self.stack():
            weights = layer.input_weight(), layer.bias(), layer.state_weight()
            x = _TreeLayer.apply(x, *weights, sorted_parents, level_sizes)
        return x[places]


class _TreeLayer(torch.autograd.Function):
    """One layer over a forest whose nodes are sorted by depth.

    Written out with its gradient because autograd would compute and add up the gradient of the recurrent weights
    once per depth, where one multiplication over all nodes does.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        input_weight: Tensor,
        bias: Tensor,
        state_weight: Tensor,
        parents: Tensor,
        level_sizes: list[int],
    ) -> Tensor:
        """From inputs [P, inputs], weights [4H, inputs], [4H] and [4H, H], and parents [P] to hidden states [P, H]."""
        nodes, dim = len(x), state_weight.shape[1]
        gates = quick.affine(x, input_weight, bias, out=x.new_empty(nodes, 4 * dim))
        cells = gates.new_empty(nodes, dim)
        hiddens = gates.new_empty(nodes, dim)
        previous_cells = gates.new_zeros(nodes, dim)
        previous_hiddens = gates.new_zeros(nodes, dim)
        recurrent = PackedWeight(state_weight)
        start = 0
        for depth, size in enumerate(level_sizes):
            level = slice(start, start + size)
            if depth > 0:
                torch.index_select(hiddens, 0, parents[level], out=previous_hiddens[level])
                torch.index_select(cells, 0, parents[level], out=previous_cells[level])
                recurrent.add_of_rows(gates[level], previous_hiddens, level)
            add, keep, candidate, show = gates[level].chunk(4, dim=1)
            gates[level, : 2 * dim].sigmoid_()
            candidate.tanh_()
            show.sigmoid_()
            torch.mul(keep, previous_cells[level], out=cells[level]).addcmul_(add, candidate)
            torch.mul(cells[level].tanh(), show, out=hiddens[level])
            start += size
        ctx.save_for_backward(x, gates, cells, previous_cells, previous_hiddens, input_weight, state_weight, parents)
        ctx.level_sizes = level_sizes
        return hiddens

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_hiddens: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the inputs [P, inputs] and of the weights [4H, inputs], [4H] and [4H, H]."""
        x, gates, cells, previous_cells, previous_hiddens, input_weight, state_weight, parents = ctx.saved_tensors
        dim = state_weight.shape[1]
        grad_hiddens = grad_hiddens.clone()
        grad_cells = torch.zeros_like(cells)
        # How the gates before their non-linearities follow from cell and hidden gradients does not depend on other
        # nodes, so it is computed for all nodes before the walk from the leaves to the roots.
        add, keep, candidate, show = gates.chunk(4, dim=1)
        shown = cells.tanh()
        through_cell = torch.cat(
            [candidate * add * (1 - add), previous_cells * keep * (1 - keep), add * (1 - candidate * candidate)], dim=1
        ).unflatten(1, (3, dim))
        through_show = shown * show * (1 - show)
        cell_from_hidden = show * (1 - shown * shown)
        grad_gates = torch.empty_like(gates)
        recurrent = PackedWeight(state_weight.t())
        end = len(gates)
        for depth in reversed(range(len(ctx.level_sizes))):
            level = slice(end - ctx.level_sizes[depth], end)
            grad_cells[level].addcmul_(grad_hiddens[level], cell_from_hidden[level])
            by_gate = grad_gates[level].unflatten(1, (4, dim))
            torch.mul(through_cell[level], grad_cells[level].unsqueeze(1), out=by_gate[:, :3])
            torch.mul(through_show[level], grad_hiddens[level], out=by_gate[:, 3])
            if depth > 0:
                grad_hiddens.index_add_(0, parents[level], recurrent.of_rows(grad_gates, level))
                grad_cells.index_add_(0, parents[level], grad_cells[level] * keep[level])
            end = level.start
        grad_x = quick.affine(grad_gates, input_weight.t(), None, out=torch.empty_like(x))
        grad_input_weight, grad_state_weight = (quick.product(grad_gates, inputs) for inputs in (x, previous_hiddens))
        return grad_x, grad_input_weight, grad_gates.sum(0), grad_state_weight, None, None
