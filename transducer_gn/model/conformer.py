"""A Conformer layer: feed-forward, attention, convolution, feed-forward, each added to its input; one norm at the end.

The modules see padding, but nothing flows from it to valid frames: attention does not look at it, the convolution
finds zeros there, and balancers leave it out.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from transducer_gn.config import EncoderConfig
from transducer_gn.model.activation import Balancer, BasicNorm, Limits, double_swish, dropout
from transducer_gn.model.attention import RelativeAttention
from transducer_gn.model.scaled import ScaledBias, ScaledLinear, ScaledTensor


@dataclass(frozen=True)
class LayerCache:
    """What a layer remembers of M past frames.

    `memory` [B, M, 2A] are keys and values, `history` [B, K - 1, D] the last inputs of the convolution; the latter
    has no frames if the convolution is not causal.
    """

    memory: Tensor
    history: Tensor


class FeedForward(nn.Module):
    """Two linear layers; starts out small, so that a new layer is close to the identity."""

    def __init__(self, dim: int, inner_dim: int, dropout_probability: float) -> None:
        super().__init__()
        self.input = ScaledLinear(dim, inner_dim)
        self.balancer = Balancer(Limits())
        self.output = ScaledLinear(inner_dim, dim, gain=0.25)
        self.dropout = dropout_probability

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """From `x` [B, T, D] to [B, T, D]; `valid` [B, T] is false at padding."""
        x = double_swish(self.balancer(self.input(x), valid))
        return self.output(dropout(x, self.dropout, self.training))


class Convolution(nn.Module):
    """Gated linear unit, then a depthwise convolution over `kernel` frames."""

    def __init__(self, dim: int, kernel: int, causal: bool) -> None:
        super().__init__()
        self.kernel = kernel
        # How far to the right the convolution sees; the rest of its kernel lies to the left.
        self.future = 0 if causal else kernel // 2
        self.input = ScaledLinear(dim, 2 * dim)
        self.gate_balancer = Balancer(Limits(max_positive=1.0, max_abs=10.0))
        self.depthwise = ScaledTensor(dim, 1, 1, kernel, rms=kernel**-0.5)
        self.depthwise_bias = ScaledBias(dim)
        self.balancer = Balancer(Limits(max_positive=1.0))
        self.output = ScaledLinear(dim, dim, gain=0.25)

    def empty_history(self, x: Tensor) -> Tensor:
        """The zeros [B, kernel - 1 - future, D] before the first frame, of the type of `x` [B, T, D]."""
        return x.new_zeros(len(x), self.kernel - 1 - self.future, x.shape[2])

    def forward(self, x: Tensor, valid: Tensor, history: Tensor) -> tuple[Tensor, Tensor]:
        """From `x` [B, T, D] and the `history` before it to outputs [B, T, D] and the history after it."""
        x = functional.glu(self.gate_balancer(self.input(x), valid), dim=2)
        x = x.masked_fill(~valid.unsqueeze(2), 0.0)
        x = torch.cat([history.to(x.dtype), x], dim=1)
        history = x[:, x.shape[1] - history.shape[1] :]
        x = functional.pad(x, (0, 0, 0, self.future))
        x = depthwise(x, self.depthwise(), self.depthwise_bias())
        return self.output(double_swish(self.balancer(x, valid))), history


def channels_last_is_quick(x: Tensor) -> bool:
    """Whether depthwise convolutions are quickest with channels last, the layout that frames have.

    So they are on a CPU. CUDA has a kernel of its own for float32, which wants channels first; given channels last,
    cuDNN falls back to a slow one. (Read in upstream reports, not tried.)
    """
    return x.device.type == "cpu"


def depthwise(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """From `x` [B, T + K - 1, D], `weight` [D, 1, 1, K] and `bias` [D] to each channel's convolution [B, T, D]."""
    # A picture of height 1.
    picture = x.transpose(1, 2).unsqueeze(2)
    if not channels_last_is_quick(x):
        picture = picture.contiguous()
    return functional.conv2d(picture, weight, bias, groups=x.shape[2]).squeeze(2).transpose(1, 2)


class ConformerLayer(nn.Module):
    """One layer of the encoder."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.first_feedforward = FeedForward(config.dim, config.feedforward_dim, config.dropout)
        self.attention = RelativeAttention(config.dim, config.attention_dim, config.heads)
        self.convolution = Convolution(config.dim, config.kernel, config.causal)
        self.second_feedforward = FeedForward(config.dim, config.feedforward_dim, config.dropout)
        self.balancer = Balancer(Limits(min_positive=0.45, max_positive=0.55, max_abs=6.0))
        self.norm = BasicNorm()

    def empty_cache(self, x: Tensor) -> LayerCache:
        """The cache before the first frame, for inputs like `x` [B, T, D]."""
        width = 2 * self.attention.heads * self.attention.head_dim
        return LayerCache(x.new_zeros(len(x), 0, width), self.convolution.empty_history(x))

    def forward(
        self, x: Tensor, positions: Tensor, visible: Tensor, valid: Tensor, cache: LayerCache
    ) -> tuple[Tensor, LayerCache]:
        """From `x` [B, Q, D] and the cache of M frames before it to outputs [B, Q, D] and the cache after it.

        `positions` and `visible` are as in `RelativeAttention.forward`; `valid` [B, Q] is false at padding.
        """
        x = x + dropout(self.first_feedforward(x, valid), self.dropout, self.training)
        attended, memory = self.attention(x, positions, visible, cache.memory)
        x = x + dropout(attended, self.dropout, self.training)
        convolved, history = self.convolution(x, valid, cache.history)
        x = x + dropout(convolved, self.dropout, self.training)
        x = x + dropout(self.second_feedforward(x, valid), self.dropout, self.training)
        return self.norm(self.balancer(x, valid)), LayerCache(memory, history)
