"""Invariant: expected errors are those of the list's posterior written out, in value and in every gradient, and with a
list of all sequences those of the model; errors are counted on words; training for them resumes exactly.
"""

import itertools
import json
import math

import kaldialign
import oracles
import pytest
import torch
from list_cases import EXACT, AllSequences, Case, lattice_inputs, schedule_point
from toy_data import toy_settings

from transducer_gn.common.errors import UserError
from transducer_gn.config import MwerConfig, config_parser, read_config
from transducer_gn.data.tokenizer import Tokenizer
from transducer_gn.lattice import tree_lattice
from transducer_gn.lattice.prefix_tree import build_prefix_tree
from transducer_gn.training.expected_errors import ErrorCounter, ExpectedErrors, expected_errors
from transducer_gn.training.nbest_objective import nbest_objective
from transducer_gn.training.objective import Terms, sequence_losses
from transducer_gn.training.schedule import SchedulePoint
from transducer_gn.training.training_pass import TrainingPass

ALPHAS = {"raw": lambda alpha: 0.0, "local": lambda alpha: 1.0, "interpolated": lambda alpha: alpha}


def count(case, **settings):
    """The task of counting a case's errors, in tokens."""
    return ErrorCounter(MwerConfig(weight=0.5, unit="token", **settings), None).task(case.tokens, case.lengths)


def written_out(case, alpha, scores, reference):
    """(expected errors, baseline) of each utterance, by enumeration of alignments and of edits."""
    found = []
    for b in range(len(case.tokens)):
        sequences = [z for _, z in case.sequences(b)]
        listed = list(zip(case.scores(b, ALPHAS[scores](alpha)), sequences, strict=True))
        if reference == "found" and len(listed) > 1 and listed[0][0] < min(score for score, _ in listed[1:]):
            listed = listed[1:]
        errors = [oracles.edit_distance(sequences[0], z) for _, z in listed]
        total = oracles.log_sum_exp([score for score, _ in listed])
        expected = sum(math.exp(score - total) * n for (score, _), n in zip(listed, errors, strict=True))
        found.append((expected, sum(errors) / len(errors)))
    return found


@pytest.mark.parametrize("reference", ["always", "found"])
@pytest.mark.parametrize("scores", list(ALPHAS))
@pytest.mark.parametrize("alpha", [1.0, 0.3])
@pytest.mark.parametrize("mwer", [0.25, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_equals_the_formula_written_out(seed, mwer, alpha, scores, reference):
    case = Case(seed)
    errors = count(case, scores=scores, reference=reference)
    result = case.objective(alpha=alpha, regulariser_weight=0.1, mwer=mwer, errors=errors)
    pairs = written_out(case, alpha, scores, reference)
    regulariser = case.literal(alpha, 0.1) - case.literal(alpha, 0.0)
    loss = (1 - mwer) * case.literal(alpha, 0.0) + mwer * sum(x - mean for x, mean in pairs) + regulariser
    assert result.loss.item() == pytest.approx(loss, rel=1e-9, abs=1e-9)
    per_token = sum(x for x, _ in pairs) / int(case.lengths[:, 0].sum())
    assert result.metrics()["expected_errors"] == pytest.approx(per_token, rel=1e-9)


def test_some_list_is_without_its_reference():
    """Else the cases above would not tell "found" from "always"."""
    pairs = [[written_out(Case(seed), 0.3, "raw", place) for seed in range(4)] for place in ("always", "found")]
    assert pairs[0] != pairs[1]


@pytest.mark.parametrize(
    ("scores", "alpha", "mwer"), [("raw", 0.3, 0.6), ("interpolated", 0.3, 0.6), ("local", 1.0, 1.0), ("raw", 1.0, 0.6)]
)
@pytest.mark.parametrize("reference", ["always", "found"])
@pytest.mark.parametrize("seed", range(2))
def test_gradcheck(seed, reference, scores, alpha, mwer):
    case = Case(seed, utterances=2, sequences=4, longest=2, frames=3)
    errors = count(case, scores=scores, reference=reference)

    def loss(frames, prefixes, weight, bias):
        inputs = lattice_inputs(frames, case.frame_lengths, prefixes, weight, bias)
        return nbest_objective(inputs, case.tree, schedule_point(alpha, 0.1, mwer=mwer), EXACT, None, errors).loss

    assert torch.autograd.gradcheck(loss, case.leaves)


def test_the_baseline_changes_no_gradient():
    case = Case(5)
    scores = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    errors = count(case).count()
    result = expected_errors(scores, case.tree.distinct, errors)
    assert not torch.allclose(result.loss, result.expected)
    listed = scores.masked_fill(~case.tree.distinct, -math.inf)
    plain = (listed.softmax(1) * errors.counts).sum(1)
    torch.testing.assert_close(result.expected, plain)
    ours, theirs = (torch.autograd.grad(x.sum(), scores, retain_graph=True)[0] for x in (result.loss, plain))
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    assert ours.abs().sum() > 0


def test_a_list_of_all_sequences_gives_the_exact_expectation():
    case = AllSequences()
    task = ErrorCounter(MwerConfig(weight=1.0, unit="token"), None).task(case.tokens, case.lengths)
    found = nbest_objective(case.inputs, case.tree, schedule_point(0.0, mwer=1.0), EXACT, None, task).metrics()
    labels = list(case.labels())
    errors = sum(weight * oracles.edit_distance(case.reference, tokens) for tokens, weight in labels)
    expected = errors / sum(weight for _, weight in labels)
    assert found["expected_errors"] * len(case.reference) == pytest.approx(expected, rel=1e-6)


def test_raw_posteriors_need_two_outputs_per_point(monkeypatch):
    """Beside what the references' own normalisation needs, competitors have all V outputs evaluated only for others."""
    case, rows = Case(2), []
    full_weights = tree_lattice.full_weights

    def noting(inputs, asked, negligible):
        rows.append(len(asked.nodes))
        return full_weights(inputs, asked, negligible)

    monkeypatch.setattr(tree_lattice, "full_weights", noting)
    case.objective(alpha=0.3, mwer=0.5, errors=count(case, scores="raw"))
    assert rows == [int(case.tree.in_reference.sum())]
    case.objective(alpha=0.3, mwer=0.5, errors=count(case, scores="local"))
    assert len(rows) == 3 and rows[2] > 0


def test_an_utterance_without_competitors_has_nothing_to_expect():
    case = Case(1)
    tokens, lengths = case.tokens[:, :1], case.lengths[:, :1]
    tree = build_prefix_tree(tokens, lengths)
    inputs = lattice_inputs(case.frames, case.frame_lengths, case.prefixes[: len(tree.parents)], case.weight, case.bias)
    for scores, reference in itertools.product(ALPHAS, ("always", "found")):
        settings = MwerConfig(weight=1.0, unit="token", scores=scores, reference=reference)
        task = ErrorCounter(settings, None).task(tokens, lengths)
        result = nbest_objective(inputs, tree, schedule_point(1.0, mwer=1.0), EXACT, None, task)
        assert result.loss.item() == 0 and result.metrics()["expected_errors"] == 0


def test_a_weight_without_lists_is_refused():
    with pytest.raises(ValueError, match="no lists"):
        Case(0).objective(alpha=0.3, mwer=0.5)


# Counting


def test_an_objective_without_weight_has_no_say():
    """A likelihood that is infinite, as that of a reference without any alignment, would make no number of a sum."""
    nothing = torch.zeros(())
    errors = ExpectedErrors(torch.tensor([0.5, 2.0]), torch.tensor([1.5, 1.0]), reference_units=7)
    numerator, log_normaliser = torch.tensor([-math.inf, -3.0]), torch.tensor([1.0, -1.0])
    terms = Terms(numerator, log_normaliser, None, nothing, nothing, nothing, errors)
    losses = {mwer: sequence_losses(terms, SchedulePoint(0.0, 0.0, mwer=mwer)).tolist() for mwer in (0.0, 0.25, 1.0)}
    assert losses == {0.0: [math.inf, 2.0], 0.25: [math.inf, 0.75 * 2.0 + 0.25 * 1.0], 1.0: [-1.0, 1.0]}


def test_errors_are_those_of_words(toy):
    tokenizer = Tokenizer.load(toy.folder / f"lang_unigram_{toy.vocab_size}")
    texts = [["MAIL AND ORDER", "NAIL AND ORDER", "MAIL ORDER", "MAIL AND BUT ORDER SO", ""], ["SO", "SO SO"]]
    ids = [[tokenizer.encode(text) for text in own] for own in texts]
    ids[1] += [None, tokenizer.encode("MAI"), None]
    found = ErrorCounter(MwerConfig(weight=1.0), tokenizer.decode).count(ids)
    assert found.counts.tolist() == [[0, 1, 1, 2, 3], [0, 1, 0, 1, 0]] and found.reference_units == 4
    pieces = ErrorCounter(MwerConfig(weight=1.0, unit="token"), tokenizer.decode).count(ids)
    expected = [kaldialign.edit_distance(ids[0][0], other)["total"] for other in ids[0]]
    assert pieces.counts[0].tolist() == expected and pieces.reference_units == len(ids[0][0]) + len(ids[1][0])


def test_lists_come_from_tensors_as_they_are():
    tokens = torch.tensor([[[1, 2, 3], [1, 3, 9], [7, 7, 7], [1, 2, 3]]])
    task = ErrorCounter(MwerConfig(weight=1.0, unit="token"), None).task(tokens, torch.tensor([[3, 2, -1, 0]]))
    assert task.count().counts.tolist() == [[0, 1, 0, 3]]


# Settings


@pytest.mark.parametrize("change", [dict(weight=1.5), dict(unit="letter"), dict(scores="wild"), dict(reference="no")])
def test_bad_settings_are_named(change):
    with pytest.raises(UserError, match=f"mwer.{next(iter(change))}"):
        MwerConfig(**change)


def test_an_exact_normaliser_has_no_list(toy):
    flags = {"model.predictor.kind": "finite-state", "normalisation.exact": "true", "mwer.weight": 0.5}
    with pytest.raises(UserError, match="mwer.weight.*normalisation.exact"):
        read_config(config_parser("test"), toy_settings(toy, **flags))


# Training


@pytest.mark.parametrize(("weight", "lookahead"), [(0.0, 0), (1.0, 0), (1.0, 4)])
def test_competitors_are_searched_at_alpha_1_only_for_expected_errors(
    train, local_run, tmp_path, monkeypatch, weight, lookahead
):
    searched = []
    search_together = TrainingPass.search_together

    def noting(self, encoded, batches, alpha):
        searched.append(alpha)
        return search_together(self, encoded, batches, alpha)

    monkeypatch.setattr(TrainingPass, "search_together", noting)
    settings = {
        "training.epochs": 2,
        "mwer.weight": weight,
        "mwer.scores": "local",
        "competitors.lookahead": lookahead,
        "training.memory_scan": "false",
    }
    train(tmp_path / "exp", branch_from=local_run / "epoch-1.pt", **settings)
    lines = [json.loads(line) for line in (tmp_path / "exp" / "metrics.jsonl").read_text().splitlines()]
    if weight == 0:
        assert not searched and not any("expected_errors" in line for line in lines)
        return
    assert set(searched) == {1.0}
    assert all(0 < line["expected_errors"] < math.inf for line in lines)


def test_a_branch_of_a_global_run_begins_at_its_alpha(train, local_run, tmp_path):
    settings = {"training.epochs": 2, "normalisation.alpha": 0.3, "normalisation.alpha_start": 0.3, "mwer.weight": 0.5}
    train(tmp_path / "exp", branch_from=local_run / "epoch-1.pt", **settings | {"training.log_interval": 1})
    lines = [json.loads(line) for line in (tmp_path / "exp" / "metrics.jsonl").read_text().splitlines()]
    assert {line["alpha"] for line in lines if line["kind"] == "train"} == {0.3}
