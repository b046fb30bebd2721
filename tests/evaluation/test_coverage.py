"""Invariant: a list of all sequences is the exact normaliser, with the exact gradient; shorter ones fall short."""

import json
import math
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
import toy_data
from scripts import run_script
from small_models import small_model_config

from transducer_gn.config import Config, PredictorConfig, config_parser, read_config
from transducer_gn.data.batches import Batch
from transducer_gn.evaluation.coverage import Coverage, batch_losses, coverage_row, measure_coverage
from transducer_gn.model.chunk import evaluation_chunk
from transducer_gn.model.transducer import build_model
from transducer_gn.recognition.system import System
from transducer_gn.reporting.figures import coverage_figure
from transducer_gn.training.distributed import World
from transducer_gn.training.exact_objective import exact_objective
from transducer_gn.training.schedule import SchedulePoint
from transducer_gn.training.trainer import Trainer

# Two frames with at most one of three labels each have 1 + 3 + 9 sequences.
ALL = 13
FEATURE_FRAMES = 11


@pytest.fixture
def system():
    torch.manual_seed(0)
    predictor = PredictorConfig(kind="finite-state", dim=10, context=1)
    config = replace(small_model_config(), vocab_size=4, predictor=predictor)
    model = build_model(config).double().eval().requires_grad_(False)
    with torch.no_grad():
        model.joiner.output.weight.value.mul_(3)
    return System("small", model, Config(model=config), None, alpha=0.4)


@pytest.fixture
def batch():
    features = torch.randn(2, FEATURE_FRAMES, 80, generator=torch.Generator().manual_seed(1)).double()
    return Batch(
        features=features,
        feature_lengths=torch.tensor([FEATURE_FRAMES, FEATURE_FRAMES - 4]),
        tokens=torch.tensor([[1, 2], [3, 0]]),
        token_lengths=torch.tensor([2, 1]),
        texts=["", ""],
        ids=["a", "b"],
        groups=["", ""],
        units=["a", "b"],
        durations=torch.ones(2),
        custom=[{}, {}],
    )


def test_a_list_of_all_sequences_is_exact(system, batch):
    shorter, whole = measure_coverage(system, [batch], [1, ALL - 1], max_tokens_per_frame=1)
    assert whole.log_shares == pytest.approx([0.0, 0.0], abs=1e-9)
    assert whole.cosine == pytest.approx(1.0, abs=1e-9) and whole.distance < 1e-9
    assert all(log_share < -0.001 for log_share in shorter.log_shares)
    assert shorter.distance > 0.01 and shorter.cosine < 0.9999


def test_the_exact_loss_is_the_one_of_training(system, batch):
    losses, _ = batch_losses(system, batch, [1], max_tokens_per_frame=2)
    model = system.model
    chunk = evaluation_chunk(system.config.model.streaming)
    encoder_out, lengths = model.encoder(batch.features, batch.feature_lengths, chunk)
    inputs = model.joiner.lattice_inputs(encoder_out, lengths, model.predictor.all_states())
    expected = exact_objective(inputs, batch.tokens, batch.token_lengths, SchedulePoint(system.alpha, 0.0), 2)
    torch.testing.assert_close(losses[None], expected.loss, rtol=1e-9, atol=1e-9)


def test_the_script_says_more_with_longer_lists(toy, tmp_path):
    settings = {"training.memory_scan": "false", "training.epochs": 1, "model.predictor.kind": "finite-state"}
    settings |= {"model.predictor.context": 1}
    config, _ = read_config(config_parser("test"), toy_data.toy_settings(toy, **settings))
    folder = tmp_path / "finite-state"
    folder.mkdir()
    Trainer(config, folder, World()).run()
    arguments = ["--checkpoints", f"[{folder}/epoch-1.pt]", "--counts", "[1,4,16]", "--utterances", "3"]
    result = run_script("nbest_coverage.py", *arguments, "--alpha", "0.3", "--out", tmp_path)
    (values,) = json.loads((tmp_path / "coverage.json").read_text())
    assert values["alpha"] == 0.3
    assert all(x["distance"] > 1e-3 for x in values["lists"])
    assert (tmp_path / "nbest-coverage.png").is_file() and b"<svg" in (tmp_path / "nbest-coverage.svg").read_bytes()
    by_count = [x["log_shares"] for x in values["lists"]]
    assert [len(shares) for shares in by_count] == [3, 3, 3]
    for shorter, longer in pairwise(by_count):
        assert all(a < b < 0 for a, b in zip(shorter, longer, strict=True))
    assert "finite-state epoch-1" in result.stdout


def test_a_predictor_that_remembers_everything_is_refused(runs):
    result = run_script("nbest_coverage.py", "--checkpoints", f"[{runs}/local/epoch-1.pt]", check=False)
    assert result.returncode == 2 and "finite-state predictor" in result.stderr


def test_a_figure_of_lists_shows_their_numbers():
    lists = [Coverage(1, [math.log(0.5), math.log(0.3)], 0.9, 0.4), Coverage(10, [math.log(0.8)], 0.99, 0.1)]
    drawn = coverage_figure([("a", lists), ("b", lists[1:])])
    upper, lower = drawn.figure.axes
    assert [list(line.get_ydata()) for line in upper.lines] == [pytest.approx([0.4, 0.8]), pytest.approx([0.8])]
    assert [list(line.get_ydata()) for line in lower.lines] == [[0.4, 0.1], [0.1]]
    assert [label.get_text() for label in drawn.figure.legends[0].get_texts()] == ["a", "b"]


def test_small_shares_keep_their_digits():
    system = SimpleNamespace(alpha=0.3)
    row = coverage_row("x", system, Coverage(5, [math.log(1e-9), math.log(3e-9)], 0.5, 0.75))
    assert row == ["x", "0.3", "5", "2e-09", "2e-09", "0.500", "0.750"]
