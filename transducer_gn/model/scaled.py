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

    An `rms` of 0 starts it at zero, as biases do.
    """

    def __init__(self, *shape: int, rms: float) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.zeros(shape))
        self.log_scale = nn.Parameter(torch.tensor(0.0))
        if rms > 0:
            bound = math.sqrt(3) * STORED_RMS  # the uniform distribution on +-bound has this root mean square
            nn.init.uniform_(self.value, -bound, bound)
            nn.init.constant_(self.log_scale, math.log(rms / STORED_RMS))

    def scale(self) -> Tensor:
        """The factor [] between stored and effective values."""
        return self.log_scale.exp()

    def forward(self) -> Tensor:
        """The effective values [*shape]."""
        return self.value * self.scale()


class ScaledLinear(nn.Module):
    """A linear layer of scaled tensors; `gain` multiplies the initial weights, which keep variance at 1."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True, gain: float = 1.0) -> None:
        super().__init__()
        self.weight = ScaledTensor(outputs, inputs, rms=gain * inputs**-0.5)
        self.bias = ScaledTensor(outputs, rms=0.0) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """From `x` [..., inputs] to [..., outputs]."""
        bias = None if self.bias is None else self.bias()
        outputs, inputs = self.weight.value.shape
        # Scale whichever is smaller: for a streaming step of a few frames, scaling the weights would cost more
        # than multiplying by them.
        if x.numel() < outputs * inputs:
            return functional.linear(x * self.weight.scale(), self.weight.value, bias)
        return functional.linear(x, self.weight(), bias)


class ScaledEmbedding(nn.Module):
    """An embedding table whose effective entries start at root mean square 1."""

    def __init__(self, entries: int, dim: int) -> None:
        super().__init__()
        self.weight = ScaledTensor(entries, dim, rms=1.0)

    def forward(self, ids: Tensor) -> Tensor:
        """From `ids` [...] to embeddings [..., dim]."""
        return functional.embedding(ids, self.weight.value) * self.weight.scale()


class ScaledConv2d(nn.Module):
    """A square two-dimensional convolution of scaled tensors; `padding` is that of the second dimension alone."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, padding: int) -> None:
        super().__init__()
        self.weight = ScaledTensor(outputs, inputs, kernel, kernel, rms=(inputs * kernel * kernel) ** -0.5)
        self.bias = ScaledTensor(outputs, rms=0.0)
        self.stride = stride
        self.padding = (0, padding)

    def forward(self, x: Tensor) -> Tensor:
        """From `x` [B, inputs, H, W] to [B, outputs, H', W']."""
        return functional.conv2d(x, self.weight(), self.bias(), stride=self.stride, padding=self.padding)
