"""The forward recursion over the lattices of token sequences, one anti-diagonal at a time.

A point (t, u) is reached from (t - 1, u) by the blank and from (t, u - 1) by a token. Both lie on the diagonal
t + u - 1, so that a whole diagonal of all sequences is computed at once: T + U vector steps, not T x U scalar ones.
On diagonal d, row u is the point (t = d - u, u).

Everything here is float64: scores are sums of hundreds of raw weights, and what training needs is the small difference
between such sums.
"""

import math

import torch
from torch import Tensor


class Skewed:
    """Values at the points of H lattices that can be read and written by diagonal.

    They lie in memory as [H, U + 1, frames], each row with room for the frames that a diagonal runs into before the
    first; after the last, it runs into the room of the row below. There they hold the fill value.
    """

    def __init__(self, sequences: int, rows: int, frames: int, fill: float, device: torch.device) -> None:
        self._frames = frames
        self._margin = rows - 1
        width = frames + self._margin
        self._padded = torch.full((sequences, rows, width), fill, dtype=torch.float64, device=device)

    @property
    def points(self) -> Tensor:
        """[H, U + 1, T], sharing memory."""
        return self._padded[:, :, self._margin : self._margin + self._frames]

    def diagonals(self) -> list[Tensor]:
        """T + U views [H, U + 1], sharing memory."""
        sequences, rows, width = self._padded.shape
        return [
            self._padded.as_strided((sequences, rows), (rows * width, width - 1), self._margin + d)
            for d in range(self._frames + rows - 1)
        ]


def skewed_arcs(token_weights: Tensor, blank_weights: Tensor) -> tuple[Skewed, Skewed]:
    """Both kinds of arcs at the points they leave, -inf where there is none.

    Args:
        token_weights: [H, U, T]
        blank_weights: [H, U + 1, T]
    """
    sequences, rows, frames = blank_weights.shape
    tokens, blanks = (Skewed(sequences, rows, frames, -math.inf, blank_weights.device) for _ in range(2))
    tokens.points[:, :-1] = token_weights
    blanks.points[:] = blank_weights
    return tokens, blanks


def forward_diagonals(tokens: Skewed, blanks: Skewed) -> tuple[Tensor, Tensor]:
    """Log-sums over all partial paths that end at each point.

    Returns:
        (forward, by_blank), each [T + U, H, U + 1], by diagonal: over all paths, and over those whose last arc is a
        blank; -inf at points that no such path reaches
    """
    # Views are made once, not in the loop, whose steps are so small that making them would take half the time.
    token_arcs, blank_arcs = tokens.diagonals(), blanks.diagonals()
    shape = (len(blank_arcs), *blank_arcs[0].shape)
    forward, by_blank = (blank_arcs[0].new_empty(shape) for _ in range(2))
    forward[0], by_blank[0] = -math.inf, -math.inf
    forward[0, :, 0] = 0
    points, blank_sums = forward.unbind(), by_blank.unbind()
    # Tokens lead one row down: computed in the first rows of a tensor with one more, read in the last.
    token_sums = torch.full((shape[1], shape[2] + 1), -math.inf, dtype=torch.float64, device=forward.device)
    leaving, arriving = token_sums[:, 1:], token_sums[:, :-1]
    for d in range(1, shape[0]):
        torch.add(points[d - 1], blank_arcs[d - 1], out=blank_sums[d])
        torch.add(points[d - 1], token_arcs[d - 1], out=leaving)
        torch.logaddexp(blank_sums[d], arriving, out=points[d])
    return forward, by_blank


def arrival_shares(forward: Tensor, by_blank: Tensor) -> tuple[Tensor, Tensor]:
    """How the paths to each point divide between its two last arcs.

    Args:
        forward, by_blank: [T + U, H, U + 1] from `forward_diagonals`

    Returns:
        (by_token, by_blank): [T + U, H, U + 1] shares that add up to 1, or are 0 at points that no path reaches
    """
    reached = forward > -math.inf
    blank_shares = torch.where(reached, by_blank - forward, -math.inf).exp_()
    return reached.double().sub_(blank_shares), blank_shares


def occupations(token_shares: Tensor, blank_shares: Tensor, seeds: Tensor, frames: int) -> tuple[Skewed, Skewed]:
    """Walk back from the final points and divide each point's occupation among the arcs that led to it.

    This is the derivative of the scores: it needs products of shares only, so nothing can overflow.

    Args:
        token_shares, blank_shares: [T + U, H, U + 1] from `arrival_shares`
        seeds: [T + U, H, U + 1] weight of the paths that end at each point; overwritten

    Returns:
        (tokens, blanks): occupations of the arcs at the points they leave, without final blanks
    """
    diagonals, sequences, rows = seeds.shape
    tokens, blanks = (Skewed(sequences, rows, frames, 0.0, seeds.device) for _ in range(2))
    # The row that a token leaves is one above the row it leads to.
    token_arcs = [view[:, :-1] for view in tokens.diagonals()]
    blank_arcs, points = blanks.diagonals(), seeds.unbind()
    above, below = seeds[..., :-1].unbind(), seeds[..., 1:].unbind()
    token_rows, blank_rows = token_shares[..., 1:].unbind(), blank_shares.unbind()
    for d in range(diagonals - 2, -1, -1):
        torch.mul(points[d + 1], blank_rows[d + 1], out=blank_arcs[d])
        torch.mul(below[d + 1], token_rows[d + 1], out=token_arcs[d])
        points[d].add_(blank_arcs[d])
        above[d].add_(token_arcs[d])
    return tokens, blanks


def final_points(token_lengths: Tensor, frame_lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Index of each sequence's last point (frame T - 1, all tokens) in tensors by diagonal: (d, h, u), each [H].

    A sequence without frames has no such point; its index is that of point (0, 0), for the caller to overrule.
    """
    sequences = torch.arange(len(token_lengths), device=token_lengths.device)
    exists = frame_lengths > 0
    rows = torch.where(exists, token_lengths, 0)
    return torch.where(exists, frame_lengths - 1 + rows, 0), sequences, rows
