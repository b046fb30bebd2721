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
        token_weights: [H, U, T] weight of emitting token u at frame t
        blank_weights: [H, U + 1, T] weight of leaving frame t after u tokens
        token_lengths: [H]
        frame_lengths: [H]

    Returns:
        [H, U] 0-based frames; NaN beyond a sequence's length and for sequences without any alignment
    """
    check_lattice(token_weights, blank_weights, token_lengths, frame_lengths)
    sequences, tokens, frames = token_weights.shape
    if 0 in (sequences, tokens, frames):
        return token_weights.new_full((sequences, tokens), math.nan)
    lengths = [x.to(token_weights.device, torch.int64) for x in (token_lengths, frame_lengths)]
    forward, by_blank = diagonals.forward_diagonals(*diagonals.skewed_arcs(token_weights, blank_weights))
    final = diagonals.final_points(*lengths)
    times = _times_at(final, *diagonals.arrival_shares(forward, by_blank))
    final_blanks = blank_weights[final[1], final[2], (lengths[1] - 1).clamp(min=0)]
    reachable = (forward[final] + final_blanks > -math.inf) & (lengths[1] > 0)
    emitted = torch.arange(tokens, device=times.device) < lengths[0][:, None]
    return torch.where(emitted & reachable[:, None], times, math.nan).to(token_weights.dtype)


def mean_emission_time(times: Tensor) -> Tensor:
    """Average over all tokens of all sequences: [H, U] with NaN where there is no token, to a scalar."""
    return times.nanmean()


def _times_at(final: tuple[Tensor, Tensor, Tensor], by_token: Tensor, by_blank: Tensor) -> Tensor:
    """Walk over the diagonals and pick up each sequence's times at its final point.

    Args:
        final: (diagonal, sequence, tokens), each [H]
        by_token, by_blank: [T + U, H, U + 1] shares of the two arcs that lead to each point

    Returns:
        [H, U] float64
    """
    diagonal_count, sequences, rows = by_token.shape
    # times[h, u, k]: expected frame of token k over the paths to the point with u tokens on the current diagonal.
    times = by_token.new_zeros(sequences, rows, rows - 1)
    result = by_token.new_zeros(sequences, rows - 1)
    newest = torch.arange(rows - 1, device=times.device)
    for d in range(1, diagonal_count):
        by_emission = times[:, :-1].clone()
        by_emission[:, newest, newest] = (d - 1 - newest).to(times.dtype)
        times = times * by_blank[d, :, :, None]
        times[:, 1:] += by_emission * by_token[d, :, 1:, None]
        arrived = times[final[1], final[2]]
        result = torch.where((final[0] == d)[:, None], arrived, result)
    return result
