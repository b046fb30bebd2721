"""Which part of a fixed shape to compute.

On the host, looking at values costs nothing, so only what matters is computed. On an accelerator, looking would mean
to wait for it at every frame: there, everything is computed and what does not matter is masked. Both give the same.
"""

import torch
from torch import Tensor


def may_look(tensor: Tensor) -> bool:
    """Whether values of `tensor` can be read without waiting for a device."""
    return tensor.device.type == "cpu"


def rows_to_compute(mask: Tensor) -> Tensor:
    """Indices [n] into the flattened `mask` [B, M] that include all where it is true."""
    if may_look(mask):
        return mask.flatten().nonzero().squeeze(1)
    return torch.arange(mask.numel(), device=mask.device)


def width_to_compute(mask: Tensor) -> int:
    """A number of leading columns of `mask` [B, M] outside of which it is false."""
    if may_look(mask):
        columns = mask.any(0).nonzero()
        return int(columns[-1]) + 1 if len(columns) else 0
    return mask.shape[1]


def bound(lengths: Tensor, known_bound: int) -> int:
    """The largest of `lengths` [...] where it can be seen, else `known_bound`, which it does not exceed."""
    return int(lengths.max()) if may_look(lengths) and lengths.numel() else known_bound


def nothing_to_compute(mask: Tensor) -> bool:
    """Whether `mask` [...] is known to be false everywhere."""
    return may_look(mask) and not bool(mask.any())
