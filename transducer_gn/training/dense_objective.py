"""The objective as the paper computes it: every sequence has a lattice of its own, with all V weights at every point.

The reference for `objective.py`, which gives the same loss for a fraction of the cost, and its opponent in benchmarks.
"""

import math

import torch
from torch import Tensor

from transducer_gn.lattice.dense import dense_weights
from transducer_gn.lattice.prefix_tree import distinct_sequences
from transducer_gn.lattice.recursion import sequence_scores


def dense_objective(
    frames: Tensor,
    frame_lengths: Tensor,
    prefixes: Tensor,
    tokens: Tensor,
    lengths: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    alpha: float,
    regulariser_weight: float = 0.0,
    backend: str = "auto",
) -> Tensor:
    """The loss of a batch, summed over utterances.

    Args:
      frames: [B, T, J] projected encoder frames; frame_lengths: [B].
      prefixes: [B, S, U + 1, J] projected predictor outputs; sequence 0 is the reference.
      tokens: [B, S, U]; lengths: [B, S], -1 where there is no sequence.
      weight: [V, J] and bias: [V] of the joiner's output layer.
    """
    utterances, sequences, longest = tokens.shape
    own_frames = frames[:, None].expand(-1, sequences, -1, -1).flatten(0, 1)
    token_weights, blank_weights, log_sums = dense_weights(
        own_frames, prefixes.flatten(0, 1), tokens.flatten(0, 1), weight, bias
    )
    token_weights, blank_weights, log_sums = (
        x.view(utterances, sequences, *x.shape[1:]) for x in (token_weights, blank_weights, log_sums)
    )
    token_lengths = lengths.clamp(min=0)
    local = alpha * log_sums[:, 0]
    numerator = sequence_scores(
        token_weights[:, 0] - local[:, :-1], blank_weights[:, 0] - local, token_lengths[:, 0], frame_lengths, backend
    )
    loss = -numerator.sum()
    distinct = distinct_sequences(tokens, lengths)
    if alpha < 1:
        scores = sequence_scores(
            token_weights.flatten(0, 1),
            blank_weights.flatten(0, 1),
            token_lengths.flatten(),
            frame_lengths.repeat_interleave(sequences),
            backend,
        ).view(utterances, sequences)
        loss = loss + (1 - alpha) * scores.masked_fill(~distinct, -math.inf).logsumexp(1).sum()
    if regulariser_weight > 0:
        loss = loss + regulariser_weight * _regulariser(log_sums, distinct, token_lengths, frame_lengths)
    return loss


def _regulariser(log_sums: Tensor, distinct: Tensor, token_lengths: Tensor, frame_lengths: Tensor) -> Tensor:
    """Sum over utterances of frames x mean of log_sum^2 over the points of all its distinct sequences.

    Args:
      log_sums: [B, S, U + 1, T]; distinct, token_lengths: [B, S]; frame_lengths: [B].
    """
    device = log_sums.device
    rows = torch.arange(log_sums.shape[2], device=device) <= token_lengths[:, :, None]
    columns = torch.arange(log_sums.shape[3], device=device) < frame_lengths[:, None]
    valid = (rows & distinct[:, :, None])[..., None] & columns[:, None, None]
    squares = torch.where(valid, log_sums.square(), 0).sum((1, 2, 3))
    return (frame_lengths * squares / valid.sum((1, 2, 3)).clamp(min=1)).sum()
