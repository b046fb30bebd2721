"""Non-linearity, normalisation, dropout and the balancer that keeps activations in a useful range."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from transducer_gn.model.precision import at_least_float32


class _DoubleSwish(torch.autograd.Function):
    """Keeps only its slope for the gradient: elementwise passes are most of a small encoder's time on a CPU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        s = (x - 1).sigmoid_()
        y = x * s
        if ctx.needs_input_grad[0]:
            # The derivative of x s is s + x s (1 - s) = y + s (1 - y).
            ctx.save_for_backward(torch.lerp(y, y.new_ones(()), s))
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (slope,) = ctx.saved_tensors
        return gradient * slope


def double_swish(x: Tensor) -> Tensor:
    """Nearly swish applied twice, x * sigmoid(x - 1), elementwise [...]."""
    return _DoubleSwish.apply(x)


class BasicNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) over the last dimension, with a learnt eps that lets small vectors stay small."""

    def __init__(self, eps: float = 0.25) -> None:
        super().__init__()
        self.log_eps = nn.Parameter(torch.tensor(math.log(eps)))

    def forward(self, x: Tensor) -> Tensor:
        """From `x` [..., D] to [..., D]."""
        mean_square = at_least_float32(x).square().mean(dim=-1, keepdim=True)
        return x * (mean_square + self.log_eps.exp()).rsqrt().to(x.dtype)


def dropout(x: Tensor, probability: float, training: bool) -> Tensor:
    """Zero elements of `x` [...] with `probability` and scale up the rest, if `training`.

    On the CPU, torch draws one random number per element from a serial generator, which takes longer than the
    matrix multiplication before it. Here every draw of 64 bits serves four elements.
    """
    if not training or probability == 0:
        return x
    if x.device.type != "cpu":
        return functional.dropout(x, probability)
    draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device).random_(-(2**63), None)
    lanes = draws.view(torch.int16)[: x.numel()].view(x.shape)
    threshold = round(probability * 2**16) - 2**15
    keep = torch.ge(lanes, threshold, out=torch.empty_like(x))
    return x * keep.mul_(1 / (1 - probability))


@dataclass(frozen=True)
class Limits:
    """Where a balancer wants each channel: the share of positive values, and the mean absolute value."""

    min_positive: float = 0.05
    max_positive: float = 0.95
    min_abs: float = 0.2
    max_abs: float = 100.0

    # The largest share of a gradient that the balancer changes.
    strength: float = 0.01

    def nudges(self, positive: Tensor, mean_abs: Tensor) -> tuple[Tensor, Tensor]:
        """How much each channel should go up, and how much away from zero, from its statistics [C]."""
        up = ((self.min_positive - positive) / self.min_positive).clamp(min=0)
        if self.max_positive < 1:
            up = up - ((positive - self.max_positive) / (1 - self.max_positive)).clamp(min=0)
        away = ((self.min_abs - mean_abs) / self.min_abs).clamp(min=0)
        away = away - ((mean_abs - self.max_abs) / self.max_abs).clamp(min=0, max=1)
        return self.strength * up, self.strength * away


class _Balance(torch.autograd.Function):
    """The identity; see `Balancer` for its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, valid: Tensor, limits: Limits) -> Tensor:
        ctx.save_for_backward(x, valid)
        ctx.limits = limits
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        x, valid = ctx.saved_tensors
        rows = at_least_float32(x.reshape(-1, x.shape[-1]))
        weights = valid.expand(x.shape[:-1]).reshape(1, -1).to(rows.dtype)
        weights = weights / weights.sum()
        # Sums over rows as products with a vector: torch reduces over a first dimension much more slowly.
        signs = rows.sign()
        positive = (weights @ signs + 1) / 2
        up, away = ctx.limits.nudges(positive, weights @ rows.abs())
        return nudge(gradient, signs.view(x.shape), up[0], away[0]), None, None


def nudge(gradient: Tensor, signs: Tensor, up: Tensor, away: Tensor) -> Tensor:
    """The `gradient` [..., C] less the share up + away * sign [C] of its own absolute value, by signs [..., C]."""
    if gradient.device.type == "cpu":
        # Nearly all channels are within their limits. An accelerator would have to wait to know which are not.
        outside = ((up != 0) | (away != 0)).nonzero()[:, 0]
        if 4 * len(outside) <= len(up):
            result = gradient.clone()
            if len(outside):
                part = gradient[..., outside]
                nudges = torch.addcmul(up[outside], signs[..., outside], away[outside]).to(gradient.dtype)
                result[..., outside] = torch.addcmul(part, part.abs(), nudges, value=-1)
            return result
    nudges = torch.addcmul(up, signs, away).to(gradient.dtype)
    return torch.addcmul(gradient, gradient.abs(), nudges, value=-1)


class Balancer(nn.Module):
    """The identity, whose gradient in training is nudged so that each channel stays within `limits`.

    A nudge is a small share of each element's own gradient, so that it never makes a gradient where there is none
    and always loses against a loss that insists.
    """

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self.limits = limits

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """From `x` [..., C] to the same; `valid` [...] is false at padding, which the statistics leave out."""
        if not (self.training and torch.is_grad_enabled()):
            return x
        return _Balance.apply(x, valid, self.limits)
