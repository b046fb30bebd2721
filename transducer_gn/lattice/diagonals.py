"""The forward recursion over the lattices of token sequences, one anti-diagonal at a time.

A point (t, u) is reached from (t - 1, u) by the blank and from (t, u - 1) by a token. Both lie on the diagonal
t + u - 1, so that a whole diagonal of all sequences is computed at once: T + U vector steps, not T x U scalar ones.

*Skewed* tensors hold diagonals: `skewed[d, h, u]` is the point (t = d - u, u) of sequence h, and -inf where there is
no such frame. Everything here is float64: scores are sums of hundreds of raw weights, and what training needs is
the small difference between such sums.
"""

import math

import torch
from torch import Tensor


def skew(weights: Tensor) -> Tensor:
    """Lay diagonals side by side.

    Args:
      weights: [H, R, T] weights of arcs that leave point (t, u = r).

    Returns:
      [T + R - 1, H, R] float64, contiguous.
    """
    sequences, rows, frames = weights.shape
    diagonals = frames + rows - 1
    # A row padded to one more than the number of diagonals, read with one less, moves right by one each row.
    padded = torch.nn.functional.pad(weights.double(), (0, rows), value=-math.inf)
    sheared = padded.flatten(1)[:, : rows * diagonals].view(sequences, rows, diagonals)
    return sheared.permute(2, 0, 1).contiguous()


def unskew(skewed: Tensor, frames: int) -> Tensor:
    """Inverse of `skew`: [T + R - 1, H, R] to [H, R, T]."""
    diagonals, sequences, rows = skewed.shape
    flat = skewed.permute(1, 2, 0).reshape(sequences, rows * diagonals)
    return torch.nn.functional.pad(flat, (0, rows)).view(sequences, rows, diagonals + 1)[..., :frames]


def forward_diagonals(tokens: Tensor, blanks: Tensor) -> Tensor:
    """Log-sum over all partial paths that end at each point.

    Args:
      tokens: [T + U, H, U + 1] skewed token weights; the last row is -inf (no token leaves the full sequence).
      blanks: [T + U, H, U + 1] skewed blank weights.

    Returns:
      [T + U, H, U + 2]: entry [d, h, u + 1] belongs to point (d - u, u); entry [d, h, 0] is -inf and stands for
      "no token before the first".
    """
    diagonals, sequences, rows = blanks.shape
    forward = blanks.new_full((diagonals, sequences, rows + 1), -math.inf)
    forward[0, :, 1] = 0
    by_token = tokens.new_full((sequences, rows), -math.inf)
    for d in range(1, diagonals):
        before = forward[d - 1]
        torch.add(before[:, 1:-1], tokens[d - 1, :, :-1], out=by_token[:, 1:])
        torch.logaddexp(before[:, 1:] + blanks[d - 1], by_token, out=forward[d, :, 1:])
    return forward


def arrival_shares(forward: Tensor, tokens: Tensor, blanks: Tensor) -> tuple[Tensor, Tensor]:
    """How the paths to each point divide between its two last arcs.

    Args:
      forward: [T + U, H, U + 2] from `forward_diagonals`.
      tokens, blanks: [T + U, H, U + 1] as there.

    Returns:
      (by_token, by_blank), each [T + U - 1, H, U + 1]: entry [d, h, u] is the share of the paths to point
      (d + 1 - u, u) that arrive by that arc; both are 0 at points that no path reaches.
    """
    reached = forward[1:, :, 1:]
    # Points beyond reach have -inf - -inf here: not a number, and no share.
    by_blank = (forward[:-1, :, 1:] + blanks[:-1] - reached).exp_().nan_to_num_(nan=0.0)
    by_token = torch.zeros_like(by_blank)
    by_token[..., 1:] = (forward[:-1, :, 1:-1] + tokens[:-1, :, :-1] - reached[..., 1:]).exp_().nan_to_num_(nan=0.0)
    return by_token, by_blank


def occupations(by_token: Tensor, by_blank: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor]:
    """Walk back from the final points and divide each point's occupation among the arcs that led to it.

    This is the derivative of the scores: it needs products of shares only, so nothing can overflow.

    Args:
      by_token, by_blank: [T + U - 1, H, U + 1] from `arrival_shares`.
      seeds: [T + U, H, U + 1] weight of the paths that end at each point.

    Returns:
      (tokens, blanks): [T + U, H, U + 1] occupations of the arcs that *leave* each point, without final blanks.
    """
    tokens = torch.zeros_like(seeds)
    blanks = torch.zeros_like(seeds)
    point = seeds[-1]
    for d in range(seeds.shape[0] - 2, -1, -1):
        torch.mul(point, by_blank[d], out=blanks[d])
        torch.mul(point[:, 1:], by_token[d, :, 1:], out=tokens[d, :, :-1])
        point = blanks[d] + tokens[d] + seeds[d]
    return tokens, blanks


def skewed_arcs(token_weights: Tensor, blank_weights: Tensor) -> tuple[Tensor, Tensor]:
    """Skew both kinds of arcs to the same [T + U, H, U + 1].

    Args:
      token_weights: [H, U, T]; blank_weights: [H, U + 1, T].
    """
    tokens = torch.nn.functional.pad(token_weights, (0, 0, 0, 1), value=-math.inf)
    return skew(tokens), skew(blank_weights)


def final_points(token_lengths: Tensor, frame_lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Index of each sequence's last point (frame T - 1, all tokens) in a skewed tensor: (diagonal, h, u), each [H].

    A sequence without frames has no such point; its index is that of point (0, 0), for the caller to overrule.
    """
    sequences = torch.arange(len(token_lengths), device=token_lengths.device)
    exists = frame_lengths > 0
    rows = torch.where(exists, token_lengths, 0)
    return torch.where(exists, frame_lengths - 1 + rows, 0), sequences, rows
