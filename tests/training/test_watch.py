"""Invariant: training that goes wrong says so, names what to change, and moves no parameter by a bad gradient."""

import logging
import math

import pytest
import torch
from toy_data import parameters_of

from transducer_gn.common.errors import UserError
from transducer_gn.config import CompetitorConfig, TrainingConfig
from transducer_gn.training import training_pass, watch


@pytest.fixture
def broken_losses(monkeypatch):
    """Makes the loss of chosen updates NaN."""

    def at(*updates):
        count = iter(range(1, 1000))
        forward = training_pass.TrainingPass.forward

        def maybe_broken(self, *arguments):
            objective = forward(self, *arguments)
            if self.training and next(count) in updates:
                return training_pass.Objective(objective.loss * math.nan, objective.sums, objective.log_sums)
            return objective

        monkeypatch.setattr(training_pass.TrainingPass, "forward", maybe_broken)

    return at


def test_a_bad_batch_is_kept_skipped_and_counted(train, tmp_path, broken_losses, caplog):
    broken_losses(2)
    settings = {
        "training.epochs": 1,
        "training.memory_scan": "false",
        "training.save_interval": 1,
        "training.keep_last": 9,
    }
    trainer = train(tmp_path / "exp", stop_after=3, **settings)
    assert trainer.state.watch.bad_batches == 1
    before, after, later = (parameters_of(tmp_path / "exp" / f"checkpoint-{n}.pt") for n in (1, 2, 3))
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert any(not torch.equal(after[name], later[name]) for name in after)
    assert "is not finite" in caplog.text and "bad-batch-2-0.pt" in caplog.text
    kept = torch.load(tmp_path / "exp" / "bad-batch-2-0.pt", weights_only=True)
    assert kept["ids"] and torch.isfinite(kept["features"]).all()


def test_too_many_bad_batches_end_training(train, tmp_path, broken_losses):
    broken_losses(1, 2, 3)
    settings = {"training.epochs": 1, "training.memory_scan": "false", "training.max_bad_batches": 3}
    with pytest.raises(UserError, match="3 updates of this epoch had no finite gradient; lower optimiser.initial_lr"):
        train(tmp_path / "exp", **settings)


@pytest.fixture
def watching():
    return watch.Watch(TrainingConfig(collapse_updates=20), CompetitorConfig(count=10))


def look(watching, share, competitors, times, alpha=0.3):
    for n in range(times):
        watching.look_at(10 * n, {"reference_share": share, "competitors": competitors}, alpha, updates=10)


def test_a_collapse_is_noticed_once_it_lasts(watching, caplog):
    look(watching, 0.99999, 10, times=1)
    assert not caplog.records
    look(watching, 0.99999, 10, times=5)
    assert len(caplog.records) == 1 and "alpha_per_epoch" in caplog.text


def test_recovery_resets_the_count(watching, caplog):
    for share in (0.99999, 0.5, 0.99999, 0.5):
        look(watching, share, 10, times=1)
    assert not caplog.records


def test_too_few_competitors_are_noticed(watching, caplog):
    look(watching, 0.5, 3.0, times=2)
    assert "3.0 distinct competitors" in caplog.text and "competitors.beam" in caplog.text


def test_local_training_has_no_competitors_to_watch(watching, caplog):
    look(watching, 1.0, 0, times=5, alpha=1.0)
    assert not caplog.records


def test_memory_scan_moves_nothing(train, tmp_path):
    with_scan = train(tmp_path / "with", stop_after=1, **{"training.epochs": 1, "training.memory_scan": "true"})
    without = train(tmp_path / "without", stop_after=1, **{"training.epochs": 1, "training.memory_scan": "false"})
    for name, value in with_scan.state.learner.model.state_dict().items():
        assert torch.equal(value, without.state.learner.model.state_dict()[name])


def test_out_of_memory_names_the_batch_and_the_setting(train, tmp_path, monkeypatch):
    def no_memory(self, *arguments):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(training_pass.TrainingPass, "forward", no_memory)
    with pytest.raises(
        UserError, match=r"out of memory on a batch of \d+ utterances.*train-\d+.*data.batches.max_duration"
    ):
        train(tmp_path / "exp", **{"training.epochs": 1})


def test_other_errors_stay_what_they_are(train, tmp_path, monkeypatch):
    def broken(self, *arguments):
        raise RuntimeError("a bug")

    monkeypatch.setattr(training_pass.TrainingPass, "forward", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        train(tmp_path / "exp", **{"training.epochs": 1})


@pytest.fixture(autouse=True)
def quiet():
    logging.getLogger().setLevel(logging.WARNING)
