"""Readable slow references: plain Python, every alignment and every label sequence written out.

Weights are nested lists of floats (or tensors that index the same way). Nothing here is clever.
"""

import math
from collections.abc import Iterator
from itertools import combinations_with_replacement, product


def log_sum_exp(values: list[float]) -> float:
    """log of the sum of exponentials; of nothing, -inf."""
    largest = max(values, default=-math.inf)
    if largest == -math.inf:
        return -math.inf
    return largest + math.log(math.fsum(math.exp(value - largest) for value in values))


def alignments(tokens: int, frames: int) -> Iterator[tuple[int, ...]]:
    """Every alignment of a sequence of `tokens` tokens: the frame at which each token is emitted.

    Without frames only the empty sequence has an alignment.
    """
    yield from combinations_with_replacement(range(frames), tokens)


def alignment_weight(token_weights, blank_weights, frames: int, emitted_at: tuple[int, ...]) -> float:
    """Sum of the log weights of one alignment: its tokens, and one blank at every frame."""
    weight = math.fsum(float(token_weights[u][t]) for u, t in enumerate(emitted_at))
    for t in range(frames):
        emitted_before_leaving = sum(frame <= t for frame in emitted_at)
        weight += float(blank_weights[emitted_before_leaving][t])
    return weight


def sequence_score(token_weights, blank_weights, tokens: int, frames: int) -> float:
    """Log-sum over all alignments."""
    return log_sum_exp(
        [alignment_weight(token_weights, blank_weights, frames, path) for path in alignments(tokens, frames)]
    )


def occupations(token_weights, blank_weights, tokens: int, frames: int) -> tuple[list, list]:
    """Probability, under the alignments' weights, of each token arc [U][T] and each blank arc [U + 1][T]."""
    token_arcs = [[0.0] * frames for _ in range(tokens)]
    blank_arcs = [[0.0] * frames for _ in range(tokens + 1)]
    total = sequence_score(token_weights, blank_weights, tokens, frames)
    if total == -math.inf:
        return token_arcs, blank_arcs
    for path in alignments(tokens, frames):
        share = math.exp(alignment_weight(token_weights, blank_weights, frames, path) - total)
        for u, t in enumerate(path):
            token_arcs[u][t] += share
        for t in range(frames):
            blank_arcs[sum(frame <= t for frame in path)][t] += share
    return token_arcs, blank_arcs


def emission_times(token_weights, blank_weights, tokens: int, frames: int) -> list[float]:
    """Expected frame of each token over all alignments."""
    total = sequence_score(token_weights, blank_weights, tokens, frames)
    expected = [0.0] * tokens
    for path in alignments(tokens, frames):
        share = math.exp(alignment_weight(token_weights, blank_weights, frames, path) - total)
        for u, t in enumerate(path):
            expected[u] += share * t
    return expected
