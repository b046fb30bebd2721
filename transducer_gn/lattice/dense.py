"""The textbook joiner: all V weights at every point of every sequence's own lattice, kept for backward.

This is how the paper computes them. It is here as the reference for the tiles of `weights.py` and as the opponent in
benchmarks, not for training.
"""

import torch
from torch import Tensor

from transducer_gn.common.units import BLANK


def dense_weights(
    frames: Tensor, prefixes: Tensor, tokens: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Weights of the arcs of H token sequences.

    Args:
      frames: [H, T, J] projected encoder frames; prefixes: [H, U + 1, J] projected predictor outputs.
      tokens: [H, U] token ids.
      weight: [V, J] and bias: [V] of the output layer.

    Returns:
      token_weights [H, U, T], blank_weights [H, U + 1, T], log_sums [H, U + 1, T].
    """
    hidden = torch.tanh(frames[:, None] + prefixes[:, :, None])  # [H, U + 1, T, J]
    logits = torch.nn.functional.linear(hidden, weight, bias)  # [H, U + 1, T, V]
    index = tokens[:, :, None, None].expand(-1, -1, frames.shape[1], 1)
    token_weights = logits[:, :-1].gather(3, index)[..., 0]
    return token_weights, logits[..., BLANK], logits.logsumexp(3)
