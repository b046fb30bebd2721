"""Invariant: a token's emission time is the mean over alignments of its frame: literally, by occupations, and by the
expectation semiring alike.
"""

import math

import oracles
import pytest
import torch

from transducer_gn.lattice.emission import emission_times, mean_emission_time
from transducer_gn.lattice.recursion import sequence_scores


def random_case(seed, sequences=6, tokens=4, frames=5):
    generator = torch.Generator().manual_seed(seed)
    token_weights = 3 * torch.randn(sequences, tokens, frames, generator=generator, dtype=torch.float64)
    blank_weights = 3 * torch.randn(sequences, tokens + 1, frames, generator=generator, dtype=torch.float64)
    token_lengths = torch.randint(0, tokens + 1, (sequences,), generator=generator)
    frame_lengths = torch.randint(1, frames + 1, (sequences,), generator=generator)
    return token_weights, blank_weights, token_lengths, frame_lengths


@pytest.mark.parametrize("seed", range(40))
def test_equals_enumeration_and_occupations(seed):
    token_weights, blank_weights, token_lengths, frame_lengths = random_case(seed)
    times = emission_times(token_weights, blank_weights, token_lengths, frame_lengths)
    token_weights.requires_grad_()
    sequence_scores(token_weights, blank_weights, token_lengths, frame_lengths).sum().backward()
    by_occupation = (token_weights.grad * torch.arange(5)).sum(2)
    for h, (tokens, frames) in enumerate(zip(token_lengths.tolist(), frame_lengths.tolist(), strict=True)):
        expected = oracles.emission_times(token_weights[h].tolist(), blank_weights[h].tolist(), tokens, frames)
        torch.testing.assert_close(times[h, :tokens].tolist(), expected, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(times[h, :tokens], by_occupation[h, :tokens], rtol=1e-9, atol=1e-9)
        assert times[h, tokens:].isnan().all()


def test_times_do_not_depend_on_a_common_factor_of_all_alignments():
    # Z(x) divides every alignment alike, which is why globally normalised models need no Z here: each alignment has one
    # blank per frame, so a constant on all blanks is such a factor.
    token_weights, blank_weights, *lengths = random_case(1)
    torch.testing.assert_close(
        emission_times(token_weights, blank_weights, *lengths),
        emission_times(token_weights, blank_weights + 7.5, *lengths),
        equal_nan=True,
        rtol=1e-9,
        atol=1e-9,
    )


def test_unreachable_and_absent_tokens_are_nan_and_left_out_of_the_mean():
    token_weights, blank_weights, _, _ = random_case(2, sequences=3, tokens=2, frames=3)
    token_weights[0, 1] = -math.inf
    token_weights[1] = -math.inf
    token_weights[1, 0, 2] = 0.0
    lengths = (torch.tensor([2, 1, 2]), torch.tensor([3, 3, 0]))
    times = emission_times(token_weights, blank_weights, *lengths)
    assert times[0].isnan().all() and times[2].isnan().all()
    assert times[1, 0] == 2.0 and times[1, 1].isnan()
    assert mean_emission_time(times) == 2.0


def test_float32_agrees_with_float64_and_keeps_its_dtype():
    token_weights, blank_weights, *lengths = random_case(4, tokens=6, frames=20)
    single = emission_times(token_weights.float(), blank_weights.float(), *lengths)
    assert single.dtype == torch.float32
    exact = emission_times(token_weights, blank_weights, *lengths)
    torch.testing.assert_close(single.double(), exact, rtol=1e-4, atol=1e-4, equal_nan=True)


def test_no_tokens_no_times():
    times = emission_times(torch.zeros(2, 0, 3), torch.zeros(2, 1, 3), torch.tensor([0, 0]), torch.tensor([3, 2]))
    assert times.tolist() == [[], []]


def test_bad_lengths_are_named():
    with pytest.raises(ValueError, match="frame_lengths must be between 0 and 3"):
        emission_times(torch.zeros(1, 1, 3), torch.zeros(1, 2, 3), torch.tensor([1]), torch.tensor([4]))
