"""The sum of squared log-sums over chosen lattice points: the part of the regulariser that no sequence score needs.

It is a plain sum with factors known beforehand, so its gradient is computed in the forward pass, while a tile's logits
are at hand; backward only scales it. That saves computing every point's V weights a second time.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from transducer_gn.lattice import tiles


@dataclass(frozen=True)
class Points:
    """M lattice points with factors.

    Attributes:
      frames: [M] index of each point's frame in the flattened [B * T] frames.
      prefixes: [M] index of each point's prefix.
      factors: [M] what its squared log-sum is multiplied by.
    """

    frames: Tensor
    prefixes: Tensor
    factors: Tensor


def squared_log_sums(frames: Tensor, prefixes: Tensor, weight: Tensor, bias: Tensor, points: Points) -> Tensor:
    """Sum over points of factor x log_sum^2.

    Args:
      frames: [B, T, J] projected encoder frames; prefixes: [P, J] projected predictor outputs.
      weight: [V, J] and bias: [V] of the output layer.

    Returns:
      A scalar.
    """
    with tiles.without_autocast(frames):
        return _SquaredLogSums.apply(
            frames.flatten(0, 1), prefixes, weight, bias, points.frames, points.prefixes, points.factors
        )


class _SquaredLogSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx, frames, prefixes, weight, bias, at_frames, at_prefixes, factors):
        inputs = (frames, prefixes, weight, bias)
        ctx.grads = [torch.zeros_like(x) for x in inputs] if any(ctx.needs_input_grad) else None
        total = frames.new_zeros(())
        size = tiles.FULL_POINTS[frames.device.type]
        for start in range(0, len(factors), size):
            tile = [x[start : start + size] for x in (at_frames, at_prefixes, factors)]
            total += _tile_sum(*inputs, *tile, ctx.grads)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_total):
        return *(grad_total * grad for grad in ctx.grads), None, None, None


def _tile_sum(
    frames: Tensor,
    prefixes: Tensor,
    weight: Tensor,
    bias: Tensor,
    at_frames: Tensor,
    at_prefixes: Tensor,
    factors: Tensor,
    grads: list[Tensor] | None,
) -> Tensor:
    """One tile's part of the sum; adds to `grads`, one for each of the first four arguments, unless None.

    Args:
      frames: [B * T, J]; prefixes: [P, J]; weight: [V, J]; bias: [V]; the rest: [m].
    """
    hidden = (frames.index_select(0, at_frames) + prefixes.index_select(0, at_prefixes)).tanh_()
    logits = torch.addmm(bias, hidden, weight.t())
    log_sums = logits.logsumexp(1)
    if grads is not None:
        frame_grads, prefix_grads, weight_grad, bias_grad = grads
        softmax = logits.sub_(log_sums[:, None]).exp_()
        grad = softmax.mul_((2 * factors * log_sums)[:, None])
        weight_grad.addmm_(grad.t(), hidden)
        bias_grad += grad.sum(0)
        hidden_grad = grad @ weight
        hidden_grad.addcmul_(hidden_grad, hidden.mul_(hidden), value=-1)
        frame_grads.index_add_(0, at_frames, hidden_grad)
        prefix_grads.index_add_(0, at_prefixes, hidden_grad)
    return factors @ log_sums.square()
