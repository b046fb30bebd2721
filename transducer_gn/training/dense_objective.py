"""Z over an N-best list as the paper computes it: a lattice for every sequence, with all V weights at every point.

The reference for `nbest_objective.py`, which gives the same loss for a fraction of the cost, and its opponent in
benchmarks.
"""

import math

import torch
from torch import Tensor

from transducer_gn.lattice.dense import dense_weights
from transducer_gn.lattice.diagonal_prior import with_diagonal_prior
from transducer_gn.lattice.interpolation import Interpolation
from transducer_gn.lattice.joint import LatticeInputs
from transducer_gn.lattice.prefix_tree import distinct_sequences
from transducer_gn.lattice.recursion import sequence_scores
from transducer_gn.training.objective import Objective, Terms, combine
from transducer_gn.training.schedule import SchedulePoint


def dense_objective(
    inputs: LatticeInputs, tokens: Tensor, lengths: Tensor, point: SchedulePoint, backend: str = "auto"
) -> Objective:
    """The objective of a batch; for the arguments see `dense_terms`."""
    return combine(dense_terms(inputs, tokens, lengths, point, backend), point, inputs.frame_lengths)


def dense_terms(
    inputs: LatticeInputs, tokens: Tensor, lengths: Tensor, point: SchedulePoint, backend: str = "auto"
) -> Terms:
    """The terms of the objective.

    Args:
        inputs: with the prefixes of all sequences one after another, nothing shared: P is B * S * (U + 1)
        tokens: [B, S, U] sequences; sequence 0 is the reference
        lengths: [B, S] their numbers of tokens, -1 where there is no sequence
        point: alpha and the diagonal prior, now
        backend: of the recursion
    """
    interpolation, frame_lengths = Interpolation(point.alpha), inputs.frame_lengths
    token_weights, blank_weights, log_sums = dense_weights(inputs, tokens)
    distinct, token_lengths = distinct_sequences(tokens, lengths), lengths.clamp(min=0)
    token, blank = interpolation.arcs(token_weights[:, 0], blank_weights[:, 0], log_sums[:, 0])
    token = with_diagonal_prior(token, point.diagonal_prior, token_lengths[:, 0], frame_lengths)
    numerator = sequence_scores(token, blank, token_lengths[:, 0], frame_lengths, backend)
    normaliser, share = None, None
    if not interpolation.is_local:
        arcs = (token_weights.flatten(0, 1), blank_weights.flatten(0, 1))
        owners = frame_lengths.repeat_interleave(tokens.shape[1])
        scores = sequence_scores(*arcs, token_lengths.flatten(), owners, backend).view(lengths.shape)
        normaliser = scores.masked_fill(~distinct, -math.inf).logsumexp(1)
        share = (scores[:, 0] - normaliser).detach().exp()
    rows = torch.arange(log_sums.shape[2], device=tokens.device) <= token_lengths[:, :, None]
    valid = (rows & distinct[:, :, None])[..., None] & inputs.within[:, None, None]
    return Terms(
        numerator=numerator,
        log_normaliser=normaliser,
        reference_share=share,
        regulariser=_regulariser(log_sums, valid, frame_lengths),
        log_sums=torch.where(valid, log_sums.detach(), 0),
        competitors=distinct[:, 1:].sum(),
    )


def _regulariser(log_sums: Tensor, valid: Tensor, frame_lengths: Tensor) -> Tensor:
    """Sum over utterances of frames x mean of log_sum^2 over the points of all its distinct sequences.

    Args:
        log_sums: [B, S, U + 1, T]
        valid: [B, S, U + 1, T] whether a point exists
        frame_lengths: [B] number of frames of each utterance
    """
    squares = torch.where(valid, log_sums.square(), 0).sum((1, 2, 3))
    return (frame_lengths * squares / valid.sum((1, 2, 3)).clamp(min=1)).sum()
