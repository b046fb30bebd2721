"""Matrix products by weights that were brought into the order of the processor's kernels once.

torch multiplies by MKL, which must look at weights as they come, and which is at its best on one maker's processors.
oneDNN, which torch brings along too, keeps weights packed. With the few rows of a search it is two to three times as
quick where it was measured, and the result for a row does not depend, to the last digit, on how many others there are.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from transducer_gn.common import quick

# What the order of packed weights is chosen for; any number of rows can be multiplied.
ROWS = 16
# How many rows of a larger tensor are multiplied at least; a processor is as quick with them as with one.
SEVERAL = 4


class PackedWeight:
    """A linear layer of weights [outputs, inputs], with a bias [outputs] or without.

    Where weights cannot be packed (in double precision, on an accelerator, without oneDNN) products are torch's own.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight = weight
        self._bias = bias
        self._packed = _packed(weight)

    def product(self, x: Tensor) -> Tensor:
        """From `x` [..., inputs] to [..., outputs]."""
        if self._packed is None or x.dtype != torch.float32:
            return functional.linear(x, self._weight, self._bias)
        product: Tensor = _KERNELS._linear_pointwise(x, self._packed, self._bias, "none", [], "")
        return product

    def added_to(self, other: Tensor, x: Tensor) -> Tensor:
        """`other` [n, outputs] and the product of `x` [n, inputs]."""
        # There is a kernel for both, with the same digits, which takes up to half as long again for a few rows.
        return self.product(x).add_(other)

    def of_rows(self, x: Tensor, rows: slice) -> Tensor:
        """From some rows of `x` [n, inputs] to [rows, outputs], without the bias."""
        if self._packed is None or x.dtype != torch.float32:
            return x[rows] @ self._weight.t()
        # oneDNN makes code for each number of rows that it meets, and keeps it: neighbours make for fewer numbers.
        count = rows.stop - rows.start
        several = x[rows.start : rows.start - count // -SEVERAL * SEVERAL]
        product: Tensor = _KERNELS._linear_pointwise(several, self._packed, None, "none", [], "")
        return product[:count]

    def add_of_rows(self, out: Tensor, x: Tensor, rows: slice) -> None:
        """Add `of_rows` to `out` [rows, outputs]."""
        if self._packed is None or x.dtype != torch.float32:
            out.addmm_(x[rows], self._weight.t())
        else:
            out.add_(self.of_rows(x, rows))


_KERNELS: Any = torch.ops.mkldnn


def _packed(weight: Tensor) -> Tensor | None:
    """Packed weights [outputs, inputs]; None if they cannot be."""
    if not quick.is_wanted(weight) or weight.dtype != torch.float32 or not torch.backends.mkldnn.is_available():
        return None
    try:
        packed: Tensor = _KERNELS._reorder_linear_weight(weight.contiguous(), ROWS)
    except (AttributeError, RuntimeError):
        # The kernels are no public part of torch.
        return None
    return packed
