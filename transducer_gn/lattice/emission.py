"""When tokens come out: the expected emission time of each token of a sequence, over all its alignments.

This is the forward recursion in the expectation semiring. An element pairs a weight with, for each token, a time
multiplied by that weight. Here the pair is kept as the weight and the time itself, which is the same thing divided by
the weight: extending a path leaves times alone, adding two sets of paths mixes their times by their shares.
"""

import math

import torch
from torch import Tensor

from transducer_gn.lattice import diagonals
from transducer_gn.lattice.recursion import check_lattice


@torch.no_grad()
def emission_times(
    token_weights: Tensor, blank_weights: Tensor, token_lengths: Tensor, frame_lengths: Tensor
) -> Tensor:
    """Expected frame at which each token is emitted; a forward pass only.

    Args:
      token_weights: [H, U, T] weight of emitting token u at frame t.
      blank_weights: [H, U + 1, T] weight of leaving frame t after u tokens.
      token_lengths: [H]; frame_lengths: [H].

    Returns:
      [H, U] 0-based frames; NaN beyond a sequence's length and for sequences without any alignment.
    """
    check_lattice(token_weights, blank_weights, token_lengths, frame_lengths)
    sequences, tokens, frames = token_weights.shape
    if 0 in (sequences, tokens, frames):
        return token_weights.new_full((sequences, tokens), math.nan)
    lengths = [x.to(token_weights.device, torch.int64) for x in (token_lengths, frame_lengths)]
    arcs = diagonals.skewed_arcs(token_weights, blank_weights)
    forward = diagonals.forward_diagonals(*arcs)
    shares = diagonals.arrival_shares(forward, *arcs)
    final = diagonals.final_points(*lengths)
    times = _times_at(final, *shares)
    reachable = (forward[final[0], final[1], final[2] + 1] + arcs[1][final] > -math.inf) & (lengths[1] > 0)
    emitted = torch.arange(tokens, device=times.device) < lengths[0][:, None]
    return torch.where(emitted & reachable[:, None], times, math.nan).to(token_weights.dtype)


def mean_emission_time(times: Tensor) -> Tensor:
    """Average over all tokens of all sequences: [H, U] with NaN where there is no token, to a scalar."""
    return times.nanmean()


def _times_at(final: tuple[Tensor, Tensor, Tensor], by_token: Tensor, by_blank: Tensor) -> Tensor:
    """Walk over the diagonals and pick up each sequence's times at its final point.

    Args:
      final: (diagonal, sequence, tokens), each [H].
      by_token, by_blank: [T + U - 1, H, U + 1] shares of the two arcs that lead to each point of diagonals 1, 2, ...

    Returns:
      [H, U] float64.
    """
    steps, sequences, rows = by_token.shape
    # times[h, u, k]: expected frame of token k over the paths to the point with u tokens on the current diagonal.
    times = by_token.new_zeros(sequences, rows, rows - 1)
    result = by_token.new_zeros(sequences, rows - 1)
    newest = torch.arange(rows - 1, device=times.device)
    for d in range(1, steps + 1):
        by_emission = times[:, :-1].clone()
        by_emission[:, newest, newest] = (d - 1 - newest).to(times.dtype)
        times = times * by_blank[d - 1, :, :, None]
        times[:, 1:] += by_emission * by_token[d - 1, :, 1:, None]
        arrived = times[final[1], final[2]]
        result = torch.where((final[0] == d)[:, None], arrived, result)
    return result
