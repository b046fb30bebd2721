"""The objective with exact Z, for finite-state predictors: a sum over every label sequence instead of an N-best list.

The joiner is evaluated at every frame for every state of the predictor, V^c of them. Only logits are kept for backward;
hidden vectors are computed again, a few frames at a time.
"""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from transducer_gn.lattice.finite_state import capped_scores, log_normaliser, sequence_weights
from transducer_gn.training.objective import Objective

# Hidden vectors that exist at a time.
POINTS = {"cpu": 1 << 13, "cuda": 1 << 17}


def exact_objective(
    frames: Tensor,
    frame_lengths: Tensor,
    states: Tensor,
    tokens: Tensor,
    token_lengths: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    alpha: float,
    regulariser_weight: float = 0.0,
    max_tokens_per_frame: int,
) -> Objective:
    """The objective of a batch; numerator and Z both allow at most so many tokens per frame.

    Args:
      frames: [B, T, J] projected encoder frames; frame_lengths: [B].
      states: [V**c, J] projected predictor output of every state.
      tokens: [B, U] references; token_lengths: [B].
      weight: [V, J] and bias: [V] of the joiner's output layer.
    """
    logits = state_logits(frames, states, weight, bias)
    log_sums = logits.logsumexp(3)
    lengths = token_lengths[:, None]
    token_weights, blank_weights, at_states = sequence_weights(logits, tokens[:, None], lengths)
    # Interpolated only along the reference: the lattice of all states is too large to do so everywhere.
    utterance = torch.arange(len(tokens), device=tokens.device)[:, None, None]
    subtracted = alpha * log_sums.transpose(1, 2)[utterance, at_states]

    def score(token_weights: Tensor, blank_weights: Tensor) -> Tensor:
        return capped_scores(token_weights, blank_weights, lengths, frame_lengths, max_tokens_per_frame)[:, 0]

    numerator = score(token_weights - subtracted[:, :, :-1], blank_weights - subtracted)
    normaliser = log_normaliser(logits, frame_lengths, max_tokens_per_frame)
    loss = ((1 - alpha) * normaliser - numerator).sum()
    valid = torch.arange(frames.shape[1], device=frames.device) < frame_lengths[:, None]
    squares = torch.where(valid[..., None], log_sums.square(), 0)
    regulariser = squares.sum() / states.shape[0]
    if regulariser_weight > 0:
        loss = loss + regulariser_weight * regulariser
    with torch.no_grad():
        share = (score(token_weights, blank_weights) - normaliser).exp().sum()
    sums = {
        "loss": loss,
        "numerator": numerator.sum(),
        "log_normaliser": normaliser.sum(),
        "regulariser": regulariser,
        "reference_share": share,
        "competitors": torch.zeros(()),
        "frames": frame_lengths.sum(),
        "utterances": torch.tensor(len(frame_lengths)),
    }
    return Objective(loss, {name: value.detach().to(loss.device) for name, value in sums.items()}, log_sums.detach()[valid])


def state_logits(frames: Tensor, states: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Raw weights [B, T, V**c, V] of every label in every state at every frame.

    Args:
      frames: [B, T, J]; states: [V**c, J]; weight: [V, J]; bias: [V].
    """
    height = max(1, POINTS[frames.device.type] // len(states))
    flat = frames.flatten(0, 1)
    parts = [checkpoint(_joiner, part, states, weight, bias, use_reentrant=False) for part in flat.split(height)]
    return torch.cat(parts).view(*frames.shape[:2], len(states), -1)


def _joiner(frames: Tensor, states: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """[n, V**c, V] from frames [n, J] and states [V**c, J]."""
    return torch.nn.functional.linear(torch.tanh(frames[:, None] + states), weight, bias)
