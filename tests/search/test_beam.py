"""The beam search equals enumeration where it prunes nothing, and a plain search of the same rules where it does.

Weights are in double precision; scores of the two then agree to 1e-9, sequences, their order and their times exactly.
"""

import copy
import math
from types import SimpleNamespace

import pytest
import search_oracles
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from search_oracles import ALPHAS, EXTREMES, random_frames, random_model
from torch import Tensor

from transducer_gn.search.beam import beam_search
from transducer_gn.search.hypotheses import NBest


def plain(model, encoder_out: Tensor, lengths: Tensor, beam: int, alpha: float, cap: int) -> list:
    """The plain search on each utterance of a batch."""
    return [
        search_oracles.plain_beam_search(search_oracles.model_logits(model, frames), length, beam, alpha, cap)
        for frames, length in zip(encoder_out, lengths.tolist(), strict=True)
    ]


def assert_same(found: NBest, wanted: list) -> None:
    """All sequences, times and scores of all utterances are the same."""
    for tokens, times, scores, hypotheses in zip(found.tokens, found.times, found.scores, wanted, strict=True):
        assert [tuple(sequence) for sequence in tokens] == [sequence for sequence, _, _ in hypotheses]
        assert [tuple(sequence) for sequence in times] == [sequence for _, _, sequence in hypotheses]
        assert scores == pytest.approx([score for _, score, _ in hypotheses], rel=1e-9, abs=1e-9)


def assert_same_on_table(table: Tensor, beam: int, alpha: float, cap: int, context: int = 1) -> None:
    """The search on the weights `table` [T, V ** context, V] equals the plain one."""
    model, encoder_out = search_oracles.table_model(table, context)
    found = beam_search(model, encoder_out, torch.tensor([len(table)]), beam, beam, alpha, cap)
    logits = search_oracles.table_logits(table, context)
    wanted = search_oracles.plain_beam_search(logits, len(table), beam, alpha, cap)
    # Where no sequence has any weight, the result is the empty one.
    assert_same(found, [wanted or [((), -math.inf, ())]])


@pytest.mark.parametrize("kind", ["lstm", "finite-state"])
def test_a_wide_beam_equals_enumeration(kind):
    for seed in range(60):
        model = random_model(seed, kind, vocabulary=3)
        frames, cap = ((2, 2), (4, 1), (1, 4), (3, 1))[seed % 4]
        encoder_out = random_frames(1, frames)
        logits = search_oracles.model_logits(model, encoder_out[0])
        for alpha in ALPHAS:
            wanted = search_oracles.ranked(search_oracles.enumerate_sequences(logits, frames, alpha, cap))
            # There are 31 sequences of up to 4 tokens: a beam as large as their number has no need to prune.
            found = beam_search(model, encoder_out, torch.tensor([frames]), len(wanted), len(wanted), alpha, cap)
            # Best first; of sequences with the same score, which a finite state allows, either may be the first.
            assert found.scores[0] == pytest.approx([score for _, score in wanted], rel=1e-9, abs=1e-9)
            by_sequence = {tuple(t): s for t, s in zip(found.tokens[0], found.scores[0], strict=True)}
            assert by_sequence == pytest.approx(dict(wanted), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("kind", ["lstm", "finite-state"])
@pytest.mark.parametrize("beam", [1, 2, 3, 7])
def test_a_narrow_beam_equals_the_plain_search(kind, beam):
    lengths = torch.tensor([9, 12, 0, 5])
    for seed in range(8):
        model = random_model(seed, kind, vocabulary=5)
        encoder_out = random_frames(4, 12)
        for alpha in ALPHAS:
            cap = 1 + seed % 3
            found = beam_search(model, encoder_out, lengths, beam, beam, alpha, cap)
            assert_same(found, plain(model, encoder_out, lengths, beam, alpha, cap))


def test_long_searches_over_few_tokens_equal_the_plain_search():
    # Prefixes drop out of the beam and come back all the time.
    torch.manual_seed(1)
    for _ in range(20):
        table = 2 * torch.randn(40, 9, 3).double()
        for beam in (2, 3, 4):
            assert_same_on_table(table, beam, alpha=0.3, cap=1, context=2)


def test_a_prefix_that_was_forgotten_is_recognised_when_it_returns():
    # [1] becomes [1, 2] and leaves the beam, and other prefixes push it out of the pool. At frame 6 it returns, as an
    # extension of []; at frame 7 it becomes [1, 2] again, which must be merged with the one that was there all along.
    table = torch.full((8, 15, 15), -math.inf).double()
    table[:, :, 0] = 0
    table[0, 0, 1] = table[1, 1, 2] = 0
    table[1, 1, 0] = -math.inf
    for frame in range(2, 6):
        passing = slice(3 * frame - 3, 3 * frame)
        table[frame, 0, passing] = -1
        table[frame + 1, passing, 0] = -math.inf
    table[6, 0, 1] = table[7, 1, 2] = 0
    assert_same_on_table(table, 3, alpha=0.0, cap=1)
    model, encoder_out = search_oracles.table_model(table)
    found = beam_search(model, encoder_out, torch.tensor([8]), 3, 3, 0.0, 1)
    assert found.tokens[0][0] == [1, 2]
    assert found.scores[0][0] == pytest.approx(math.log(2))


@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_extreme_weights_give_what_the_plain_search_gives(name, alpha):
    for beam in (1, 3, 8):
        for cap in (1, 3):
            assert_same_on_table(EXTREMES[name].double(), beam, alpha, cap)


WEIGHTS = st.sampled_from([-math.inf, -3.0, -1.0, 0.0, 0.0, 1.0, 30.0, 1000.0])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    weights=st.lists(WEIGHTS, min_size=36, max_size=36),
    beam=st.integers(1, 6),
    alpha=st.sampled_from(ALPHAS),
    cap=st.integers(1, 3),
)
def test_any_weights_give_what_the_plain_search_gives(weights, beam, alpha, cap):
    assert_same_on_table(torch.tensor(weights).double().view(4, 3, 3), beam, alpha, cap)


def test_neighbours_and_padding_do_not_matter():
    model = random_model(5, "lstm", vocabulary=5)
    encoder_out = random_frames(5, 10)
    lengths = torch.tensor([4, 10, 7, 1, 7])
    padded = encoder_out.clone()
    for utterance, length in enumerate(lengths):
        padded[utterance, length:] = math.nan
    together = beam_search(model, padded, lengths, 4, 4, 0.3, 3)
    for utterance, length in enumerate(lengths):
        alone = beam_search(model, encoder_out[utterance, None, :length], lengths[utterance, None], 4, 4, 0.3, 3)
        assert together.tokens[utterance] == alone.tokens[0]
        assert together.times[utterance] == alone.times[0]
        assert together.scores[utterance] == pytest.approx(alone.scores[0], rel=1e-12)


@pytest.mark.parametrize("kind", ["lstm", "finite-state"])
def test_single_precision_finds_what_double_precision_finds(kind):
    # There weights are packed, and one utterance goes a way of its own.
    for seed in range(4):
        double = random_model(seed, kind, vocabulary=7)
        model = copy.deepcopy(double)
        model.predictor.float()
        model.joiner.float()
        encoder_out, lengths = random_frames(3, 20), torch.tensor([20, 11, 16])
        for alpha in ALPHAS:
            exact = beam_search(double, encoder_out, lengths, 4, 4, alpha, 3)
            quick = beam_search(model, encoder_out.float(), lengths, 4, 4, alpha, 3)
            for utterance in range(3):
                own = encoder_out[utterance, None].float()
                alone = beam_search(model, own, lengths[utterance, None], 4, 4, alpha, 3)
                for found, place in ((quick, utterance), (alone, 0)):
                    assert found.tokens[place] == exact.tokens[utterance]
                    assert found.times[place] == exact.times[utterance]
                    assert found.scores[place] == pytest.approx(exact.scores[utterance], rel=1e-5, abs=1e-4)


def test_the_predictor_reads_each_prefix_once():
    model = random_model(2, "lstm", vocabulary=3)
    read = []

    class CountingPredictor:
        initial_state = staticmethod(model.predictor.initial_state)

        @staticmethod
        def step(tokens, state):
            read.append(len(tokens))
            return model.predictor.step(tokens, state)

    counted = SimpleNamespace(predictor=CountingPredictor, joiner=model.joiner)
    # 31 sequences of up to 4 tokens: nothing is pruned, so nothing may be read twice.
    found = beam_search(counted, random_frames(2, 4), torch.tensor([4, 4]), 31, 31, 0.3, 1)
    assert [len(sequences) for sequences in found.tokens] == [31, 31]
    assert sum(read) == 1 + 2 * 30


def test_long_utterances_keep_their_precision_in_single_precision():
    torch.manual_seed(0)
    table = torch.randn(600, 3, 3) + torch.tensor([100.0, 95.0, 95.0])
    model, encoder_out = search_oracles.table_model(table)
    found = beam_search(model, encoder_out, torch.tensor([600]), 4, 4, 0.0, 1)
    wanted = search_oracles.plain_beam_search(search_oracles.table_logits(table), 600, 4, 0.0, 1)
    assert [tuple(tokens) for tokens in found.tokens[0]] == [tokens for tokens, _, _ in wanted]
    # Scores near 6e4, where neighbouring numbers in single precision are 4e-3 apart.
    assert found.scores[0] == pytest.approx([score for _, score, _ in wanted], abs=2e-3)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_no_numbers_are_refused(value):
    table = torch.zeros(4, 3, 3).double()
    table[2, :, 1] = value
    model, encoder_out = search_oracles.table_model(table)
    with pytest.raises(ValueError, match="NaN or infinitely large for utterances \\[1\\]"):
        beam_search(model, encoder_out.repeat(2, 1, 1), torch.tensor([2, 4]), 2, 2, 0.3, 1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"beam": 0, "nbest": 0}, "nbest must be between 1 and beam"),
        ({"nbest": 5}, "nbest must be between 1 and beam = 4, not 5"),
        ({"alpha": 1.5}, "alpha is .*; it must be between 0"),
        ({"alpha": math.nan}, "alpha is .*; it must be between 0"),
        ({"max_tokens_per_frame": 0}, "max_tokens_per_frame must be at least 1"),
        ({"frame_lengths": torch.tensor([4])}, "frame_lengths\\[0\\] is 4, but encoder_out has 3 frames"),
        ({"frame_lengths": torch.tensor([3, 3])}, "frame_lengths must be integers \\[1\\]"),
        ({"frame_lengths": torch.tensor([3.0])}, "frame_lengths must be integers \\[1\\]"),
        ({"encoder_out": torch.zeros(3, 1)}, "encoder_out must be \\[B, T, D\\]"),
    ],
)
def test_wrong_arguments_are_refused(arguments, sentence):
    model, encoder_out = search_oracles.table_model(torch.zeros(3, 3, 3).double())
    defaults = {"encoder_out": encoder_out, "frame_lengths": torch.tensor([3]), "beam": 4, "nbest": 4, "alpha": 0.3}
    with pytest.raises(ValueError, match=sentence):
        beam_search(model, **{**defaults, **arguments})
