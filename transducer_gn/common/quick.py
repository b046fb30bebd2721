"""tanh and matrix products of training, in ways that are quicker on a CPU than torch's own, and round otherwise.

torch takes both from MKL, which is at its best on one maker's processors. Where it was measured, on an EPYC with
AVX-512 (torch 2.13.0), products by oneDNN, which torch brings along too, are 2.2 times as quick, and tanh by way of
torch's own sigmoid is 6 times as quick. Whatever is not wanted on a device, or cannot be had, is torch's own.

None of this is for a search, where what a hypothesis weighs must not depend, to the last digit, on how many others
there are.
"""

from typing import Any

import torch
from torch import Tensor

# Kinds of devices to be quick on.
DEVICES = {"cpu"}
# oneDNN makes code for each number of rows that it meets, and keeps it: half a millisecond and half a megabyte each. So
# it gets multiples of the first number, then of the second; the few rows that are left over are torch's to multiply.
ROWS = (256, 64)

_KERNELS: Any = torch.ops.mkldnn


def tanh_(x: Tensor) -> Tensor:
    """Overwrite `x` [...] with its hyperbolic tangent, without autograd; right to about 1e-7 in float32."""
    if not is_wanted(x):
        return x.tanh_()
    # tanh(x) = 2 sigmoid(2 x) - 1
    return x.mul_(2).sigmoid_().mul_(2).sub_(1)


def affine(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
    """A linear layer, without autograd.

    Args:
        x: [n, inputs]
        weight: [outputs, inputs]
        bias: [outputs]; None for none
        out: [n, outputs] where to write the result

    Returns:
        `out`
    """
    spans, rest = _spans(x)
    for span in spans:
        out[span] = _KERNELS._linear_pointwise(x[span], weight, bias, "none", [], "")
    if bias is None:
        torch.mm(x[rest], weight.t(), out=out[rest])
    else:
        torch.addmm(bias, x[rest], weight.t(), out=out[rest])
    return out


def add_product(sums: Tensor, left: Tensor, right: Tensor) -> None:
    """Add left^T right to `sums`, without autograd.

    Args:
        sums: [m, k]
        left: [n, m]
        right: [n, k]
    """
    spans, rest = _spans(left)
    for span in spans:
        sums += _KERNELS._linear_pointwise(left[span].t(), right[span].t(), None, "none", [], "")
    sums.addmm_(left[rest].t(), right[rest])


def product(left: Tensor, right: Tensor) -> Tensor:
    """left^T right [m, k] of `left` [n, m] and `right` [n, k], without autograd."""
    if not _spans(left)[0]:
        return left.t() @ right
    sums = left.new_zeros(left.shape[1], right.shape[1])
    add_product(sums, left, right)
    return sums


def is_wanted(x: Tensor) -> bool:
    """Whether what is computed of `x` [...] is to be quick."""
    return x.device.type in DEVICES


def _spans(x: Tensor) -> tuple[list[slice], slice]:
    """Which rows of `x` [n, width] oneDNN is to multiply, span by span, and which are left over."""
    spans: list[slice] = []
    start = 0
    if is_wanted(x) and x.dtype == torch.float32 and _has_kernels():
        for size in ROWS:
            stop = len(x) - (len(x) - start) % size
            spans += [slice(start, stop)] * (stop > start)
            start = stop
    return spans, slice(start, len(x))


def _has_kernels() -> bool:
    """Whether this torch has products of oneDNN, which are no public part of it."""
    return torch.backends.mkldnn.is_available() and hasattr(_KERNELS, "_linear_pointwise")
