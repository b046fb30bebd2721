"""Lattice points of a prefix tree at which the regulariser is evaluated: every one, or a random sample.

The regulariser of an utterance is `frames x mean of log_sum^2` over the points of all its sequences. A sequence of u
tokens has (u + 1) x frames points, so that the number of frames cancels out, and a node of the tree counts as often as
sequences run through it: its *factor* says for how much each of its points counts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from transducer_gn.lattice.prefix_tree import PrefixTree


@dataclass(frozen=True)
class Points:
    """M lattice points with factors.

    Attributes:
        frames: [M] index of each point's frame in the flattened [B * T] frames
        prefixes: [M] index of each point's prefix
        factors: [M] what its squared log-sum is multiplied by
    """

    frames: Tensor
    prefixes: Tensor
    factors: Tensor

    def split(self, size: int) -> Iterator["Points"]:
        """At most `size` points at a time."""
        for start in range(0, len(self.factors), size):
            span = slice(start, start + size)
            yield Points(self.frames[span], self.prefixes[span], self.factors[span])


def point_factors(tree: PrefixTree, counted: Tensor) -> Tensor:
    """What each node's points count for.

    Args:
        tree: of P nodes
        counted: [P] whether the node counts at all

    Returns:
        [P] factors, 0 where a node does not count
    """
    counts = torch.where(counted, tree.multiplicities, 0).double()
    totals = counts.new_zeros(tree.nodes.shape[0]).index_add_(0, tree.utterances, counts)
    return counts / totals[tree.utterances]


def choose_points(
    tree: PrefixTree,
    factors: Tensor,
    within: Tensor,
    number: int | Literal["all"],
    generator: torch.Generator | None = None,
) -> Points:
    """Points of all nodes with factors: every one, or a random sample of the same expectation.

    Args:
        tree: of P nodes
        factors: [P] of its nodes, 0 where a node is not wanted
        within: [B, T] whether a frame is one of its utterance's own
        number: of points per utterance, or "all"
        generator: of the sample, on the CPU; torch's default where None
    """
    if number == "all":
        nodes, at = (within[tree.utterances] & (factors > 0)[:, None]).nonzero(as_tuple=True)
        return Points(tree.utterances[nodes] * within.shape[1] + at, nodes, factors[nodes])
    return sample_points(tree, factors, within, number, generator)


def sample_points(
    tree: PrefixTree, factors: Tensor, within: Tensor, number: int, generator: torch.Generator | None
) -> Points:
    """Draw points of each utterance with probability proportional to their factors; for the arguments see above.

    Prefixes are drawn from evenly spread strata, which lowers the variance; frames uniformly. The draws come from the
    CPU, so that they are the same on every device.
    """
    utterances, frames = within.shape
    frame_lengths = within.sum(1)
    spread, place = torch.rand(2, utterances, number, generator=generator, dtype=torch.float64).to(factors.device)
    totals = factors.new_zeros(utterances).index_add_(0, tree.utterances, factors)
    ends = factors.cumsum(0)
    strata = (torch.arange(number, device=factors.device) + spread) / number
    targets = totals.cumsum(0)[:, None] - totals[:, None] * (1 - strata)
    nodes = torch.searchsorted(ends, targets.flatten(), right=True).clamp(max=len(factors) - 1).view(utterances, number)
    owners = tree.utterances[nodes]
    # Rounding at the edge of an utterance may yield its neighbour's node or one of no factor: such a draw counts 0.
    own = (owners == torch.arange(utterances, device=nodes.device)[:, None]) & (factors[nodes] > 0)
    at = (place * frame_lengths[:, None]).long()
    weights = torch.where(own, (totals * frame_lengths / number)[:, None], 0)
    flat_frames = owners * frames + torch.minimum(at, frame_lengths[owners] - 1).clamp(min=0)
    return Points(flat_frames.flatten(), nodes.flatten(), weights.flatten())
