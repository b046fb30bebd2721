"""Ranking scores in an order that does not depend on the device, the batch or rounding in the last digit."""

import torch
from torch import Tensor

from transducer_gn.search.packing import may_look


def order_keys(values: Tensor) -> Tensor:
    """Integers [..., N] in the order of `values` [..., N], all different: of equal values the first is the largest.

    Values are compared in single precision, so that sums that are equal but for the order of their additions are
    ties in double precision too.
    """
    bits = values.float().view(torch.int32)
    # Floats order like their bits read as integers, except that negative ones run backwards.
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ordered.long() << 32) - torch.arange(values.shape[-1], device=values.device)


def best_indices(values: Tensor, count: int) -> Tensor:
    """Indices [..., min(count, N)] of the largest of `values` [..., N], largest first, ties in order of index."""
    size = values.shape[-1]
    if may_look(values) and size > count:
        # Ties are rare: it is quicker to see whether there are any than to make all values different.
        best, indices = values.float().topk(count + 1)
        if not ((best[..., 1:] == best[..., :-1]) & (best[..., 1:] > -torch.inf)).any():
            return indices[..., :count]
    return order_keys(values).topk(min(count, size)).indices


def kth_best(values: Tensor, count: int) -> Tensor:
    """The value [..., 1] of rank `count` among `values` [..., N], in single precision; -inf if N is smaller."""
    values = values.float()
    if values.shape[-1] < count:
        return values.new_full((*values.shape[:-1], 1), -torch.inf)
    if values.shape[-1] == count:
        return values.amin(-1, keepdim=True)
    return values.topk(count).values[..., -1:]
