"""The sum of squared log-sums over chosen lattice points: the part of the regulariser that no sequence score needs.

It is a plain sum with factors known beforehand, so its gradient is computed in the forward pass, while a tile's logits
are at hand; backward only scales it. That saves computing every point's V weights a second time.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from transducer_gn.lattice import tiles
from transducer_gn.lattice.joint import LatticeInputs, OutputLayer, hidden_vectors, to_sums_gradient
from transducer_gn.lattice.points import Points


def squared_log_sums(inputs: LatticeInputs, points: Points) -> Tensor:
    """Sum over points of factor x log_sum^2.

    Args:
        inputs: of the lattices that the points lie in
        points: M points

    Returns:
        a scalar
    """
    frames, output = inputs.frames, inputs.output
    points = Points(points.frames, points.prefixes, points.factors.to(frames.dtype))
    with tiles.without_autocast(frames):
        return _SquaredLogSums.apply(frames.flatten(0, 1), inputs.prefixes, output.weight, output.bias, points)


@dataclass(frozen=True)
class _Gradients:
    """Gradients to be added to: frames [B * T, J], prefixes [P, J], and those of the output layer."""

    frames: Tensor
    prefixes: Tensor
    output: OutputLayer


class _SquaredLogSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, frames: Tensor, prefixes: Tensor, weight: Tensor, bias: Tensor, points: Points) -> Tensor:
        output = OutputLayer(weight, bias)
        ctx.grads = None
        if any(ctx.needs_input_grad):
            ctx.grads = _Gradients(torch.zeros_like(frames), torch.zeros_like(prefixes), output.zeros_like())
        total = frames.new_zeros(())
        for tile in points.split(tiles.FULL_POINTS[frames.device.type]):
            total += _tile_sum(frames, prefixes, output, tile, ctx.grads)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor | None, ...]:
        grads = (ctx.grads.frames, ctx.grads.prefixes, ctx.grads.output.weight, ctx.grads.output.bias)
        return *(grad_total * grad for grad in grads), None


def _tile_sum(frames: Tensor, prefixes: Tensor, output: OutputLayer, points: Points, sums: _Gradients | None) -> Tensor:
    """One tile's part of the sum.

    Args:
        frames: [B * T, J]
        prefixes: [P, J]
        output: the output layer
        points: those of the tile
        sums: gradients of the whole sum, added to; None where nobody needs them
    """
    own_frames, own_prefixes = frames.index_select(0, points.frames), prefixes.index_select(0, points.prefixes)
    hidden = hidden_vectors(own_frames, own_prefixes, out=own_frames)
    logits = output.logits(hidden, out=hidden.new_empty(len(hidden), len(output.bias)))
    log_sums = logits.logsumexp(1)
    if sums is not None:
        softmax = logits.sub_(log_sums[:, None]).exp_()
        grad = softmax.mul_((2 * points.factors * log_sums)[:, None])
        hidden_grad = to_sums_gradient(output.backpropagate(grad, hidden, sums.output), hidden)
        sums.frames.index_add_(0, points.frames, hidden_grad)
        sums.prefixes.index_add_(0, points.prefixes, hidden_grad)
    return points.factors @ log_sums.square()
