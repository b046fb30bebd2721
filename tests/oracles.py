"""Readable slow references: plain Python, every alignment and every label sequence written out.

Weights are nested lists of floats (or tensors that index the same way). Nothing here is clever.
"""

import math
from collections.abc import Iterator
from itertools import combinations_with_replacement, product


def log_sum_exp(values: list[float]) -> float:
    """Log of the sum of exponentials; of nothing, -inf."""
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


def label_sequences(vocabulary: int, frames: int, max_tokens_per_frame: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Every label sequence: for each frame, the tokens emitted before its blank."""
    one_frame = [
        tokens for count in range(max_tokens_per_frame + 1) for tokens in product(range(1, vocabulary), repeat=count)
    ]
    yield from product(one_frame, repeat=frames)


def label_sequence_weight(logits, context: int, labels: tuple[tuple[int, ...], ...]) -> float:
    """Log weight of one label sequence under a finite-state model; logits[t][state][label]."""
    vocabulary = len(logits[0][0])
    history = (0,) * context
    weight = 0.0
    for t, tokens in enumerate(labels):
        for token in (*tokens, 0):
            state = 0
            for digit in history:
                state = state * vocabulary + digit
            weight += float(logits[t][state][token])
            if token != 0:
                history = (*history, token)[1:] if context else ()
    return weight


def log_normaliser(logits, context: int, vocabulary: int, frames: int, max_tokens_per_frame: int) -> float:
    """Exact log Z of a finite-state model: the log-sum over every label sequence."""
    return log_sum_exp(
        [
            label_sequence_weight(logits, context, labels)
            for labels in label_sequences(vocabulary, frames, max_tokens_per_frame)
        ]
    )


def tokens_of(labels: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """The token sequence that a label sequence spells."""
    return tuple(token for tokens in labels for token in tokens)


def edit_distance(reference, hypothesis) -> int:
    """Fewest substitutions, deletions and insertions, by trying all."""
    if not reference or not hypothesis:
        return len(reference) + len(hypothesis)
    return min(
        edit_distance(reference[1:], hypothesis[1:]) + (reference[0] != hypothesis[0]),
        edit_distance(reference[1:], hypothesis) + 1,
        edit_distance(reference, hypothesis[1:]) + 1,
    )
