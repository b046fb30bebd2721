"""Invariant: exact log Z is the literal sum over every label sequence, for every context, vocabulary and limit on
tokens per frame; an N-best list covers the share of it that its sequences' label sequences make up.
"""

import math

import oracles
import pytest
import torch

from transducer_gn.lattice.finite_state import (
    capped_scores,
    log_normaliser,
    nbest_share,
    prefix_states,
    sequence_weights,
)
from transducer_gn.lattice.recursion import sequence_scores

CASES = [  # context, vocabulary, frames, tokens per frame
    (0, 2, 3, 2),
    (0, 4, 2, 2),
    (1, 2, 3, 2),
    (1, 3, 3, 1),
    (1, 3, 2, 3),
    (2, 2, 3, 2),
    (2, 3, 2, 2),
    (3, 2, 2, 2),
    (1, 3, 2, 0),
]


def random_logits(seed, context, vocabulary, frames, utterances=3, scale=2.0, blocked=0.0):
    generator = torch.Generator().manual_seed(seed)
    shape = (utterances, frames, vocabulary**context, vocabulary)
    logits = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
    logits[torch.rand(shape, generator=generator) < blocked] = -math.inf
    frame_lengths = torch.randint(0, frames + 1, (utterances,), generator=generator)
    return logits, frame_lengths


@pytest.mark.parametrize(("context", "vocabulary", "frames", "limit"), CASES)
@pytest.mark.parametrize("blocked", [0.0, 0.2])
@pytest.mark.parametrize("seed", range(5))
def test_equals_enumeration_of_label_sequences(seed, blocked, context, vocabulary, frames, limit):
    logits, frame_lengths = random_logits(seed, context, vocabulary, frames, blocked=blocked)
    expected = [
        oracles.log_normaliser(logits[b].tolist(), context, vocabulary, int(frame_lengths[b]), limit) for b in range(3)
    ]
    computed = log_normaliser(logits, frame_lengths, limit)
    torch.testing.assert_close(computed, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-9)
    single = log_normaliser(logits.float(), frame_lengths, limit)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), computed, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("context", "vocabulary", "frames", "limit"), CASES)
def test_gradcheck(context, vocabulary, frames, limit):
    logits, frame_lengths = random_logits(1, context, vocabulary, frames)
    assert torch.autograd.gradcheck(log_normaliser, (logits.requires_grad_(), frame_lengths, limit))


@pytest.mark.parametrize("seed", range(5))
def test_gradients_are_occupations_also_with_blocked_arcs(seed):
    context, vocabulary, frames, limit = 1, 3, 2, 2
    logits, _ = random_logits(seed, context, vocabulary, frames, utterances=1, blocked=0.2)
    logits.requires_grad_()
    log_z = log_normaliser(logits, torch.tensor([frames]), limit)
    expected = torch.zeros_like(logits)
    if log_z > -math.inf:
        for labels in oracles.label_sequences(vocabulary, frames, limit):
            share = math.exp(oracles.label_sequence_weight(logits[0].tolist(), context, labels) - log_z.item())
            state = 0
            for t, tokens in enumerate(labels):
                for token in (*tokens, 0):
                    expected[0, t, state, token] += share
                    state = token or state
    torch.testing.assert_close(torch.autograd.grad(log_z, logits)[0], expected.detach(), rtol=1e-9, atol=1e-12)


def test_everything_blocked_is_minus_infinity_with_zero_gradient():
    logits, _ = random_logits(0, 1, 3, 2, utterances=2)
    logits[0, 1, :, 0] = -math.inf
    logits.requires_grad_()
    log_z = log_normaliser(logits, torch.tensor([2, 2]), 2)
    assert log_z[0] == -math.inf and log_z[1] > -math.inf
    grad = torch.autograd.grad(log_z, logits, torch.ones(2, dtype=torch.float64))[0]
    assert grad[0].abs().max() == 0 and grad.isfinite().all() and grad[1, :, :, 0].sum() == pytest.approx(2.0)


@pytest.mark.parametrize("seed", range(10))
def test_share_of_an_nbest_list_equals_enumeration(seed):
    context, vocabulary, frames, limit = seed % 3, 3, 3, 2
    logits, _ = random_logits(seed, context, vocabulary, frames, utterances=1, scale=1.0)
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, vocabulary, (1, 5, 4), generator=generator)
    lengths = torch.randint(-1, 5, (1, 5), generator=generator)
    tokens[0, 4], lengths[0, 4] = tokens[0, 0], lengths[0, 0]  # a repeated sequence counts once
    wanted = {tuple(t[:n].tolist()) for t, n in zip(tokens[0], lengths[0].tolist(), strict=True) if n >= 0}
    covered = oracles.log_sum_exp(
        [
            oracles.label_sequence_weight(logits[0].tolist(), context, labels)
            for labels in oracles.label_sequences(vocabulary, frames, limit)
            if oracles.tokens_of(labels) in wanted
        ]
    )
    total = oracles.log_normaliser(logits[0].tolist(), context, vocabulary, frames, limit)
    share = nbest_share(logits, torch.tensor([frames]), tokens, lengths, limit)
    assert share.item() == pytest.approx(math.exp(covered - total), rel=1e-9)
    assert 0 < share.item() < 1


def test_gradients_of_sequences_longer_than_a_frame_can_emit():
    # With one token per frame, most lattice points cannot be reached; the last sequence cannot be emitted at all.
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(2, 3, 4, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    blanks = torch.randn(2, 3, 5, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    lengths, frame_lengths = torch.tensor([[4, 3, 0], [2, -1, 4]]), torch.tensor([4, 2])

    def reachable_scores(tokens, blanks):
        scores = capped_scores(tokens, blanks, lengths, frame_lengths, 1)
        return scores[scores > -math.inf]

    assert len(reachable_scores(tokens, blanks)) == 5
    assert torch.autograd.gradcheck(reachable_scores, (tokens, blanks))
    scores = capped_scores(tokens, blanks, lengths, frame_lengths, 1)
    assert scores[1, 2] == -math.inf
    gradients = torch.autograd.grad(scores.masked_fill(scores == -math.inf, 0).sum(), (tokens, blanks))
    assert all((gradient[1, 2] == 0).all() and gradient.isfinite().all() for gradient in gradients)


def test_list_of_all_sequences_covers_everything():
    logits, _ = random_logits(2, 1, 3, 2, utterances=1)
    sequences = sorted({oracles.tokens_of(labels) for labels in oracles.label_sequences(3, 2, 2)})
    tokens = torch.zeros(1, len(sequences), 4, dtype=torch.int64)
    for n, sequence in enumerate(sequences):
        tokens[0, n, : len(sequence)] = torch.tensor(sequence)
    lengths = torch.tensor([[len(sequence) for sequence in sequences]])
    assert nbest_share(logits, torch.tensor([2]), tokens, lengths, 2).item() == pytest.approx(1.0, rel=1e-12)


def test_sequence_weights_feed_the_recursion():
    logits, _ = random_logits(3, 2, 3, 3, utterances=1)
    sequence = (2, 1, 1)
    token_weights, blank_weights, _ = sequence_weights(logits, torch.tensor([[sequence]]), torch.tensor([[3]]))
    score = sequence_scores(token_weights[0], blank_weights[0], torch.tensor([3]), torch.tensor([3]))
    expected = oracles.log_sum_exp(
        [
            oracles.label_sequence_weight(logits[0].tolist(), 2, labels)
            for labels in oracles.label_sequences(3, 3, 3)
            if oracles.tokens_of(labels) == sequence
        ]
    )
    assert score.item() == pytest.approx(expected, rel=1e-9)


def test_states_are_the_last_tokens_newest_last():
    tokens, lengths = torch.tensor([[[1, 2, 3]]]), torch.tensor([[3]])
    assert prefix_states(tokens, lengths, 2, 4).tolist() == [[[0, 1, 1 * 4 + 2, 2 * 4 + 3]]]
    assert prefix_states(tokens, lengths, 1, 4).tolist() == [[[0, 1, 2, 3]]]
    assert prefix_states(tokens, lengths, 0, 4).tolist() == [[[0, 0, 0, 0]]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(logits=torch.zeros(1, 2, 4, 3)), "4 states, which is no power of its 3 labels"),
        (dict(logits=torch.zeros(2, 3, 3)), "logits must be"),
        (dict(logits=torch.full((1, 2, 3, 3), math.nan)), "logits holds NaN"),
        (dict(frame_lengths=torch.tensor([3])), "frame_lengths must be between 0 and 2"),
        (dict(frame_lengths=torch.tensor([1, 1])), "frame_lengths must be integers of shape"),
        (dict(max_tokens_per_frame=-1), "max_tokens_per_frame is -1"),
    ],
)
def test_bad_input_is_named(change, message):
    arguments = dict(logits=torch.zeros(1, 2, 3, 3), frame_lengths=torch.tensor([2]), max_tokens_per_frame=2)
    with pytest.raises(ValueError, match=message):
        log_normaliser(**(arguments | change))


@pytest.mark.parametrize(
    ("tokens", "length", "message"), [([1, 0], 2, "blank"), ([1, 3], 2, "outside 1 to 2"), ([1, 1], 3, "lengths")]
)
def test_bad_sequences_are_named(tokens, length, message):
    with pytest.raises(ValueError, match=message):
        prefix_states(torch.tensor([[tokens]]), torch.tensor([[length]]), 1, 3)
