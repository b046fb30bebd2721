"""A prior on alignments: tokens lie near the diagonal of their lattice, each when most of it has been heard."""

import torch
from torch import Tensor

# How much of a token is heard, on average, when the diagonal prior expects it.
HEARD_SHARE = 0.7


def with_diagonal_prior(token_weights: Tensor, strength: float, token_lengths: Tensor, frame_lengths: Tensor) -> Tensor:
    """Token weights less the penalties of their frames.

    Args:
        token_weights: [B, U, T]
        strength: what penalties are multiplied by; 0 for no prior
        token_lengths: [B] number of tokens of each sequence
        frame_lengths: [B] number of frames of each utterance

    Returns:
        [B, U, T] token weights
    """
    if strength == 0:
        return token_weights
    _, tokens, frames = token_weights.shape
    return token_weights - strength * diagonal_penalties(tokens, frames, token_lengths, frame_lengths)


def diagonal_penalties(tokens: int, frames: int, token_lengths: Tensor, frame_lengths: Tensor) -> Tensor:
    """Squared distance of each frame from the place of each token, in lengths of the utterance.

    Places are those of tokens that share out an utterance evenly, each at the time when most of it has been heard.

    Args:
        tokens: U
        frames: T
        token_lengths: [B] number of tokens of each sequence
        frame_lengths: [B] number of frames of each utterance

    Returns:
        [B, U, T] penalties
    """
    device = frame_lengths.device
    places = (torch.arange(tokens, device=device) + HEARD_SHARE) / token_lengths.clamp(min=1)[:, None]
    times = (torch.arange(frames, device=device) + 0.5) / frame_lengths.clamp(min=1)[:, None]
    return (times[:, None] - places[:, :, None]).square()
