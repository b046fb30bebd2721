"""Invariant: shares of a list are those of its sequences' scores, written out, over the reference's and over all that
any search found; errors are those of the best hypothesis of the whole beam; larger beams cover more.
"""

import math
from dataclasses import replace

import oracles
import pytest
import torch
from scripts import run_script
from search_oracles import model_logits
from small_models import shaken, small_model_config

from transducer_gn.commands.nbest_quality import main
from transducer_gn.common.errors import UserError
from transducer_gn.common.json_files import read_json
from transducer_gn.config import CompetitorConfig, Config
from transducer_gn.data.batches import Batch
from transducer_gn.evaluation.list_quality import ListQuality, measure_lists, quality_row, together
from transducer_gn.model.chunk import evaluation_chunk
from transducer_gn.model.transducer import build_model
from transducer_gn.recognition.system import System
from transducer_gn.search.beam import beam_search

FRAMES, FEATURE_FRAMES = 2, 11
BEAMS, COUNTS = [3, 9], [1, 2, 6]


class Letters:
    """Token n is the nth word."""

    def decode(self, tokens):
        return " ".join("ABCDE"[token - 1] for token in tokens)


@pytest.fixture
def system():
    torch.manual_seed(0)
    config = replace(small_model_config(), vocab_size=4)
    model = shaken(build_model(config), 0.3).double().eval().requires_grad_(False)
    settings = Config(model=config, competitors=CompetitorConfig(max_tokens_per_frame=2))
    return System("small", model, settings, Letters(), alpha=0.4)


@pytest.fixture
def batch():
    features = torch.randn(2, FEATURE_FRAMES, 80, generator=torch.Generator().manual_seed(1)).double()
    return Batch(
        features=features,
        feature_lengths=torch.tensor([FEATURE_FRAMES, FEATURE_FRAMES]),
        tokens=torch.tensor([[1, 2, 0], [3, 3, 3]]),
        token_lengths=torch.tensor([2, 3]),
        texts=["A B", "C C C"],
        ids=["a", "b"],
        groups=["", ""],
        units=["a", "b"],
        durations=torch.ones(2),
        custom=[{}, {}],
    )


@pytest.fixture
def lists(system, batch):
    """By beam, what a search finds of each utterance; and the raw score of any sequence of an utterance."""
    encoder_out, lengths = system.model.encode(
        batch.features, batch.feature_lengths, evaluation_chunk(system.config.model.streaming)
    )
    assert lengths.tolist() == [FRAMES, FRAMES]
    found = {
        beam: beam_search(system.model, encoder_out, lengths, beam, beam, system.alpha, max_tokens_per_frame=2).tokens
        for beam in BEAMS
    }
    logits = [model_logits(system.model, frames) for frames in encoder_out]
    return found, lambda row, tokens: written_out(logits[row], tokens)


def written_out(logits, tokens):
    """Raw score of a sequence over all its alignments with the frames."""
    blank = [[logits(t, tuple(tokens[:u]))[0] for t in range(FRAMES)] for u in range(len(tokens) + 1)]
    token = [[logits(t, tuple(tokens[:u]))[label] for t in range(FRAMES)] for u, label in enumerate(tokens)]
    return oracles.sequence_score(token, blank, len(tokens), FRAMES)


def test_shares_are_those_of_scores_written_out(system, batch, lists):
    found, score = lists
    references = [(1, 2), (3, 3, 3)]
    qualities, words = measure_lists(system, [batch], BEAMS, COUNTS)
    assert words == 5 and [(q.beam, q.count) for q in qualities] == [(3, 1), (3, 2), (9, 1), (9, 2), (9, 6)]
    for row, reference in enumerate(references):
        everything = {reference, *(tuple(tokens) for own in found.values() for tokens in own[row])}
        total = math.fsum(math.exp(score(row, tokens)) for tokens in everything)
        for quality in qualities:
            beam = [tuple(tokens) for tokens in found[quality.beam][row]]
            assert len(beam) == quality.beam
            own = [tokens for tokens in beam if tokens != reference][: quality.count]
            z = math.fsum(math.exp(score(row, tokens)) for tokens in (reference, *own))
            assert quality.shares[row] == pytest.approx(math.exp(score(row, reference)) / z, rel=1e-9)
            assert quality.covered[row] == pytest.approx(z / total, rel=1e-9)
            assert quality.found[row] == (reference in beam)
            assert quality.errors[row] == min(oracles.edit_distance(reference, tokens) for tokens in beam)
    # Both happen, so that both are tried.
    assert {q.found[row] for q in qualities for row in (0, 1)} == {True, False}
    longest = qualities[-1].covered
    assert all(0.5 < share < 1.0001 for share in longest) and longest > qualities[0].covered


def test_several_batches_are_added_up(system, batch):
    one, words = measure_lists(system, [batch], [3], [2])
    two, twice = measure_lists(system, [batch, batch], [3], [2])
    assert twice == 2 * words and two[0].shares == one[0].shares * 2 and two[0].errors == one[0].errors * 2


def test_sequences_that_several_beams_found_stand_once(batch, lists):
    union, places = together(batch, lists[0])
    for row, own in enumerate(union):
        assert own[0] == batch.tokens[row, : batch.token_lengths[row]].tolist()
        assert len({tuple(tokens) for tokens in own}) == len(own)
        for beam, hypotheses in lists[0].items():
            assert [own[place] for place in places[beam][row]] == hypotheses[row]


def test_a_row_has_means_and_an_error_rate():
    quality = ListQuality(6, 5, [True, False], [0.5, 0.25], [1.0, 0.5], [1, 2])
    assert quality_row(quality, 12) == ["6", "5", "0.500", "0.375", "0.750", "25.00"]


def test_a_model_that_is_not_finite_is_named_with_its_batch(system, batch):
    system.model.joiner.output.bias.value.fill_(math.nan)
    with pytest.raises(UserError, match="cannot measure the batch of a: "):
        measure_lists(system, [batch], BEAMS, COUNTS)


def test_the_script_measures_any_predictor(runs, tmp_path):
    arguments = ["--checkpoints", f"[{runs}/local/epoch-3.pt]", "--beams", "[1,2,5]", "--counts", "[1,3]"]
    result = run_script(
        "nbest_quality.py", *arguments, "--alpha", "0.3", "--utterances", "4", "--set", "test", "--json", tmp_path / "q"
    )
    (values,) = read_json(tmp_path / "q", list)
    assert values["alpha"] == 0.3 and "local epoch-3" in result.stdout
    assert [(x["beam"], x["count"], len(x["covered"])) for x in values["lists"]] == [(2, 1, 4), (5, 1, 4), (5, 3, 4)]
    assert values["lists"][2]["covered"] > values["lists"][1]["covered"]


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--beams", "[3]", "--counts", "[3,4]"], "--beams: have no room"),
        (["--beams", "[1]", "--counts", "[1]"], "--beams: have no room"),
        (["--counts", "[0]"], "--counts: must be numbers from 1 on"),
        (["--set", "nowhere"], "--set: .* has no set 'nowhere'"),
        (["--alpha", "2"], "--alpha: must be from 0"),
        (["--utterances", "0"], "--utterances: must be at least 1"),
    ],
)
def test_what_cannot_be_measured(runs, flags, problem):
    with pytest.raises(UserError, match=problem):
        main(["--checkpoints", f"[{runs}/local/epoch-3.pt]", *flags])
