"""Parameters that are stored at one size, whatever size they act at.

Adam and its kin move every element by about the learning rate, so a tensor of large elements learns slowly and one
of small elements fast. Here each tensor is stored with root mean square 0.1 and acts multiplied by the exponential
of a learnt scalar: the same learning rate is then the same relative speed everywhere.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

STORED_RMS = 0.1


class ScaledTensor(nn.Module):
    """A parameter `value` [*shape] that acts as `value * exp(log_scale)`, with initial root mean square `rms`.

    `value` itself starts with root mean square `stored_rms`.
    """

    def __init__(self, *shape: int, rms: float, stored_rms: float = STORED_RMS) -> None:
        super().__init__()
        bound = math.sqrt(3) * stored_rms  # the uniform distribution on +-bound has this root mean square
        self.value = nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
        self.log_scale = nn.Parameter(torch.tensor(math.log(rms / stored_rms)))

    def scale(self) -> Tensor:
        """The factor [] between stored and effective values."""
        return self.log_scale.exp()

    def forward(self) -> Tensor:
        """The effective values [*shape]."""
        return self.value * self.scale()

    def product(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """From `x` [..., inputs] to [..., outputs], as a layer of these weights [outputs, inputs] and a bias would."""
        # Scale whichever is smaller: for a streaming step of a few frames, scaling the weights would cost more
        # than multiplying by them.
        if x.numel() < self.value.numel():
            return functional.linear(x * self.scale(), self.value, bias)
        return functional.linear(x, self(), bias)

    def rows(self, ids: Tensor) -> Tensor:
        """The effective rows [..., dim] of a table [entries, dim] that `ids` [...] name."""
        return functional.embedding(ids, self.value) * self.scale()


class ScaledBias(ScaledTensor):
    """Biases [size] that start near zero with scale 1.

    Not at zero, where a scale has no gradient, and not stored at full size, since they have yet to grow.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size, rms=0.1 * STORED_RMS, stored_rms=0.1 * STORED_RMS)


class ScaledLinear(nn.Module):
    """A linear layer of scaled tensors; `gain` multiplies the initial weights, which keep variance at 1."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True, gain: float = 1.0) -> None:
        super().__init__()
        self.weight = ScaledTensor(outputs, inputs, rms=gain * inputs**-0.5)
        self.bias = ScaledBias(outputs) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """From `x` [..., inputs] to [..., outputs]."""
        return self.weight.product(x, None if self.bias is None else self.bias())


class ScaledEmbedding(nn.Module):
    """An embedding table whose effective entries start at root mean square 1."""

    def __init__(self, entries: int, dim: int) -> None:
        super().__init__()
        self.weight = ScaledTensor(entries, dim, rms=1.0)

    def forward(self, ids: Tensor) -> Tensor:
        """From `ids` [...] to embeddings [..., dim]."""
        return self.weight.rows(ids)


class ScaledConv2d(nn.Module):
    """A square convolution over time and frequency; `padding` is that of frequency alone.

    Channels are the last dimension, in memory too, where everything around a convolution wants them.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, padding: int) -> None:
        super().__init__()
        self.weight = ScaledTensor(outputs, inputs, kernel, kernel, rms=(inputs * kernel * kernel) ** -0.5)
        self.bias = ScaledBias(outputs)
        self.stride = stride
        self.padding = (0, padding)

    def forward(self, x: Tensor) -> Tensor:
        """From `x` [B, T, F, inputs] to [B, T', F', outputs]."""
        weight = self.weight().contiguous(memory_format=torch.channels_last)
        x = functional.conv2d(x.permute(0, 3, 1, 2), weight, self.bias(), stride=self.stride, padding=self.padding)
        return x.permute(0, 2, 3, 1)
