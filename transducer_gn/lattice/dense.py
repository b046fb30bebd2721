"""The textbook joiner: all V weights at every point of every sequence's own lattice, kept for backward.

This is how the paper computes them. It is here as the reference for the tiles of `weights.py` and as the opponent in
benchmarks, not for training.
"""

from torch import Tensor

from transducer_gn.common.units import BLANK
from transducer_gn.lattice.joint import LatticeInputs, joint_logits


def dense_weights(inputs: LatticeInputs, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Raw weights of the arcs of S token sequences of each utterance.

    Args:
        inputs: with the prefixes of all sequences one after another, nothing shared: P is B * S * (U + 1)
        tokens: [B, S, U] token ids

    Returns:
        (token_weights [B, S, U, T], blank_weights [B, S, U + 1, T], log_sums [B, S, U + 1, T])
    """
    utterances, sequences, longest = tokens.shape
    prefixes = inputs.prefixes.view(utterances, sequences, longest + 1, 1, -1)
    logits = joint_logits(inputs.frames[:, None, None], prefixes, inputs.output)  # [B, S, U + 1, T, V]
    index = tokens[..., None, None].expand(-1, -1, -1, logits.shape[3], 1)
    token_weights = logits[:, :, :-1].gather(4, index)[..., 0]
    return token_weights, logits[..., BLANK], logits.logsumexp(4)
