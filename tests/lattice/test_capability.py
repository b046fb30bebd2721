"""Invariant: on the paper's example a locally normalised streaming model cannot get its loss below log 2 per utterance,
while a globally normalised one with the very same parameters gets it to nothing.

Two utterances, "mail order" and "nail polish". The audio of the first word is the same in both; that of the second
tells them apart. Each word must be emitted at its own frame, so that waiting does not help. A streaming model sees, at
each frame, the audio so far.

The bound: at the first frame both utterances have the same input and history, so a locally normalised model gives
"mail" and "nail" probabilities p and q with p + q <= 1 in both. The mean loss is at least (-log p - log q) / 2, which
is least at p = q = 1/2: log 2. Nothing that comes later can have negative loss.
"""

import math

import pytest
import torch

from transducer_gn.lattice.finite_state import log_normaliser, sequence_weights
from transducer_gn.lattice.recursion import sequence_scores

BLANK, MAIL, NAIL, ORDER, POLISH = range(5)
REFERENCES = torch.tensor([[[MAIL, ORDER]], [[NAIL, POLISH]]])
SAME, HEARD_ORDER, HEARD_POLISH = range(3)
AUDIO = torch.tensor([[SAME, HEARD_ORDER], [SAME, HEARD_POLISH]])
FRAME_LENGTHS = torch.tensor([2, 2])


def one_word_per_frame():
    """[T, state, label]: 0 where an arc is allowed, -inf elsewhere; states are the last word."""
    allowed = torch.full((2, 5, 5), -math.inf, dtype=torch.float64)
    first, second = [MAIL, NAIL], [ORDER, POLISH]
    allowed[0, BLANK, first] = 0
    allowed[0, first, BLANK] = 0
    for word in first:
        allowed[1, word, second] = 0
    allowed[1, second, BLANK] = 0
    # States that are never entered need some arc, for their softmax to exist.
    allowed[0, second, BLANK] = 0
    allowed[1, BLANK, BLANK] = 0
    return allowed


def mean_loss(table, local):
    """Table [audio, state, label]: the streaming model, weights given the audio of the frame and the last word."""
    logits = table[AUDIO] + one_word_per_frame()
    if local:
        logits = logits.log_softmax(-1)
    token_weights, blank_weights, _ = sequence_weights(logits, REFERENCES, torch.tensor([[2], [2]]))
    scores = sequence_scores(token_weights[:, 0], blank_weights[:, 0], torch.tensor([2, 2]), FRAME_LENGTHS)
    return (log_normaliser(logits, FRAME_LENGTHS, 1) - scores).mean()


def train(local, seed):
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(3, 5, 5, generator=generator, dtype=torch.float64).requires_grad_()
    optimiser = torch.optim.Adam([table], lr=0.2)
    losses = []
    for _ in range(150):
        optimiser.zero_grad()
        loss = mean_loss(table, local)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("seed", range(2))
def test_local_stays_above_the_bound_and_global_does_not(seed):
    local, global_ = train(local=True, seed=seed), train(local=False, seed=seed)
    assert min(local) >= math.log(2) - 1e-12
    assert local[-1] < math.log(2) + 1e-2  # it did learn all that it can
    assert global_[-1] < 1e-2
    assert global_[0] > 0.1  # and had something to learn


def test_local_normalisation_is_a_special_case_of_the_same_loss():
    table = torch.randn(3, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    normalised = (table[AUDIO] + one_word_per_frame()).log_softmax(-1)
    torch.testing.assert_close(
        log_normaliser(normalised, FRAME_LENGTHS, 1), torch.zeros(2).double(), rtol=0, atol=1e-12
    )
