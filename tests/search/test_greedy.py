"""Greedy search takes the best label at every point, as the plain search does, for a batch at once."""

import math

import pytest
import search_oracles
import torch

from transducer_gn.config import PredictorConfig
from transducer_gn.model.joiner import Joiner
from transducer_gn.model.predictor import build_predictor
from transducer_gn.search.greedy import greedy_search


def random_model(seed: int, kind: str) -> search_oracles.Model:
    """A tiny model of five tokens that emits about every other time."""
    torch.manual_seed(seed)
    predictor = build_predictor(PredictorConfig(kind=kind, embedding_dim=3, dim=5, layers=2, context=2), 5).double()
    joiner = Joiner(4, predictor.output_dim, 6, 5).double()
    with torch.no_grad():
        joiner.output.weight.log_scale += 1.5
        joiner.output.bias.value[0] += 1
    return search_oracles.Model(predictor, joiner)


@pytest.mark.parametrize("kind", ["lstm", "finite-state"])
def test_equals_the_plain_search(kind):
    lengths = torch.tensor([9, 12, 0, 5])
    for seed in range(10):
        model = random_model(seed, kind)
        encoder_out = 2 * torch.randn(4, 12, 4, dtype=torch.double)
        cap = 1 + seed % 3
        found = greedy_search(model, encoder_out, lengths, 0.3, cap)
        for utterance, length in enumerate(lengths.tolist()):
            logits = search_oracles.model_logits(model, encoder_out[utterance])
            tokens, score, times = search_oracles.plain_greedy_search(logits, length, 0.3, cap)
            assert found.tokens[utterance] == [list(tokens)]
            assert found.times[utterance] == [times]
            assert found.scores[utterance] == pytest.approx([score], rel=1e-9)


@pytest.mark.parametrize(
    ("weights", "tokens"),
    [([0.0, 0.0, 0.0], []), ([-math.inf, 1.0, 1.0], [1] * 6), ([0.0, 1e6, 2e6], [2] * 6), ([-math.inf] * 3, [])],
)
def test_extreme_weights_end_and_ties_go_to_the_smallest_id(weights, tokens):
    model, encoder_out = search_oracles.table_model(torch.tensor(weights).double().expand(2, 3, 3))
    assert greedy_search(model, encoder_out, torch.tensor([2]), 0.3, 3).tokens == [[tokens]]


def test_weights_that_are_no_numbers_are_refused():
    table = torch.zeros(4, 3, 3).double()
    table[2, :, 1] = math.nan
    model, encoder_out = search_oracles.table_model(table)
    with pytest.raises(ValueError, match="NaN or infinitely large for utterances \\[1\\]"):
        greedy_search(model, encoder_out.repeat(2, 1, 1), torch.tensor([2, 4]))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [({"alpha": 2.0}, "alpha is 2.0; it must be"), ({"max_tokens_per_frame": 0}, "max_tokens_per_frame must be")],
)
def test_wrong_arguments_are_refused(arguments, sentence):
    model, encoder_out = search_oracles.table_model(torch.zeros(3, 3, 3).double())
    with pytest.raises(ValueError, match=sentence):
        greedy_search(model, encoder_out, torch.tensor([3]), **arguments)
