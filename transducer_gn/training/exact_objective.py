"""Exact Z, for finite-state predictors: a sum over every label sequence instead of an N-best list.

The joiner is evaluated at every frame for every state of the predictor, V^c of them.
"""

import torch
from torch import Tensor

from transducer_gn.lattice.diagonal_prior import with_diagonal_prior
from transducer_gn.lattice.finite_state import capped_scores, log_normaliser, sequence_weights, state_logits
from transducer_gn.lattice.interpolation import Interpolation
from transducer_gn.lattice.joint import LatticeInputs
from transducer_gn.training.objective import Objective, Terms, combine
from transducer_gn.training.schedule import SchedulePoint


def exact_objective(
    inputs: LatticeInputs, tokens: Tensor, token_lengths: Tensor, point: SchedulePoint, max_tokens_per_frame: int
) -> Objective:
    """The objective of a batch; for the arguments see `exact_terms`."""
    terms = exact_terms(inputs, tokens, token_lengths, point, max_tokens_per_frame)
    return combine(terms, point, inputs.frame_lengths)


def exact_terms(
    inputs: LatticeInputs, tokens: Tensor, token_lengths: Tensor, point: SchedulePoint, max_tokens_per_frame: int
) -> Terms:
    """The terms of the objective.

    Args:
        inputs: with a prefix for each of the V**c states
        tokens: [B, U] references
        token_lengths: [B] their numbers of tokens
        point: alpha and the diagonal prior, now
        max_tokens_per_frame: most tokens at one frame, of the references' alignments and of all that is in Z
    """
    interpolation, logits = Interpolation(point.alpha), state_logits(inputs)
    log_sums = logits.logsumexp(3)
    lengths, frame_lengths = token_lengths[:, None], inputs.frame_lengths
    token_weights, blank_weights, at_states = sequence_weights(logits, tokens[:, None], lengths)
    # Interpolated only along the reference: the lattice of all states is too large to do so everywhere.
    utterance = torch.arange(len(tokens), device=tokens.device)[:, None, None]
    token, blank = interpolation.arcs(token_weights, blank_weights, log_sums.transpose(1, 2)[utterance, at_states])
    token = with_diagonal_prior(token[:, 0], point.diagonal_prior, token_lengths, frame_lengths)[:, None]

    def score(token_weights: Tensor, blank_weights: Tensor) -> Tensor:
        return capped_scores(token_weights, blank_weights, lengths, frame_lengths, max_tokens_per_frame)[:, 0]

    numerator = score(token, blank)
    normaliser, share = None, None
    if not interpolation.is_local:
        normaliser = log_normaliser(logits, frame_lengths, max_tokens_per_frame)
        with torch.no_grad():
            share = (score(token_weights, blank_weights) - normaliser).exp()
    within = inputs.within[..., None]
    return Terms(
        numerator=numerator,
        log_normaliser=normaliser,
        reference_share=share,
        regulariser=torch.where(within, log_sums.square(), 0).sum() / logits.shape[2],
        log_sums=torch.where(within, log_sums.detach(), 0),
        competitors=torch.zeros(()),
    )
