"""Invariant: what training writes is complete, readable while it runs, and without repetition after a resume."""

import json
import logging
import subprocess
import sys
import threading
from contextlib import suppress
from types import SimpleNamespace

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from transducer_gn.config import Config, OptimiserConfig, TrainingConfig
from transducer_gn.lattice.recursion import resolve_backend
from transducer_gn.training import logbook
from transducer_gn.training.bookkeeper import Bookkeeper
from transducer_gn.training.logbook import (
    describe_run,
    drop_later_metrics,
    duration,
    git_commit,
    installed_versions,
    start_log,
)

GLOBAL = {
    "training.epochs": 2,
    "normalisation.alpha": 0.5,
    "normalisation.regulariser": 0.05,
    "normalisation.alpha_delay": 0.0,
    "normalisation.alpha_per_epoch": 1.0,
}


def test_the_log_says_where_the_cool_down_begins(caplog):
    config = Config(optimiser=OptimiserConfig(cooldown_epochs=1.5), training=TrainingConfig(epochs=4))
    for described, is_said in ((config, True), (Config(), False)):
        with caplog.at_level("INFO"):
            describe_run(described, "torch", 1, torch.device("cpu"), 0)
        assert ("falls to 0 from 2.5 epochs on until all 4 are done" in caplog.text) == is_said
        caplog.clear()


def test_metrics_tensorboard_and_best_epoch(train, tmp_path):
    folder = tmp_path / "exp"
    run = train(folder, **GLOBAL)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    training = [line for line in lines if line["kind"] == "train"]
    validation = [line for line in lines if line["kind"] == "valid"]
    wanted = (
        "loss numerator log_normaliser regulariser reference_share competitors alpha regulariser_weight learning_rate "
    )
    wanted += "gradient_norm seconds_encoder seconds_search seconds_objective seconds_backward seconds_optimiser"
    assert all(name in training[-1] for name in wanted.split())
    assert [line["step"] for line in training] == sorted({line["step"] for line in training})
    assert validation[-1]["epoch"] == 2.0 and validation[-1]["step"] == run.state.progress.step
    best = json.loads((folder / "best.json").read_text())
    assert best == {"epoch": 2, "wer": validation[-1]["wer"], "last_epoch": 2}
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    tags = events.Tags()
    assert {"train/alpha", "train/loss", "valid/wer"} <= set(tags["scalars"]) and "train/log_sum" in tags["histograms"]
    assert any("sentences" in tag for tag in tags["tensors"])
    assert [x.step for x in events.Scalars("train/alpha")] == [line["step"] for line in training]


def test_without_tensorboard_training_says_so_and_goes_on(train, tmp_path, monkeypatch, caplog):
    for name in [name for name in sys.modules if f"{name}.".startswith(("tensorboard.", "torch.utils.tensorboard."))]:
        monkeypatch.delitem(sys.modules, name)
    # What import does where there is no such package.
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    folder = tmp_path / "exp"
    run = train(folder, **GLOBAL | {"training.epochs": 1})
    (sentence,) = [record.message for record in caplog.records if "tensorboard" in record.message]
    assert "no curves are written" in sentence and "transducer_gn[train]" in sentence
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert {line["kind"] for line in lines} == {"train", "valid"} and not (folder / "tensorboard").exists()
    assert run.state.progress.epoch == 1 and (folder / "epoch-1.pt").is_file()


def test_best_epoch_is_that_of_the_lowest_error_rate_once_alpha_stays(train, tmp_path, monkeypatch):
    rates = iter([5.0, 40.0, 30.0, 35.0])

    def validate(self):
        return next(rates)

    monkeypatch.setattr(Bookkeeper, "validate", validate)
    train(tmp_path / "exp", **GLOBAL | {"training.epochs": 4, "training.validate_interval": 1000})
    # Alpha arrives in the middle of the first epoch; the first epoch's rate is the lowest of all.
    assert json.loads((tmp_path / "exp" / "best.json").read_text()) == {"epoch": 1, "wer": 5.0, "last_epoch": 4}
    rates = iter([5.0, 40.0, 30.0, 35.0])
    slow = GLOBAL | {"training.epochs": 4, "training.validate_interval": 1000, "normalisation.alpha_delay": 1.2}
    train(tmp_path / "slow", **slow)
    # Here it arrives in the second epoch, so that what came before does not count.
    assert json.loads((tmp_path / "slow" / "best.json").read_text()) == {"epoch": 3, "wer": 30.0, "last_epoch": 4}


def test_lines_after_the_last_checkpoint_and_broken_ones_are_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"kind": "train", "step": 1}\n{"kind": "train", "step": 2}\n{"kind": "train", "step": 3}\n{"kind": "tr'
    )
    drop_later_metrics(path, 2)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2]


def test_log_names_versions_commit_and_settings(train, tmp_path):
    folder = tmp_path / "exp"
    folder.mkdir()
    start_log(folder, rank=0)
    train(folder, stop_after=1, **GLOBAL)
    log = (folder / "log-0.txt").read_text()
    for text in (
        f"torch {installed_versions()['torch']}",
        git_commit(),
        "alpha_per_epoch: 1.0",
        "million parameters",
        f"backend {resolve_backend('auto', torch.device('cpu'))}",
    ):
        assert text in log


def test_a_full_disk_is_no_traceback_of_the_log(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(logging, "raiseExceptions", True)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", root.handlers[:])
    (tmp_path / "log-1.txt").symlink_to("/dev/full")
    start_log(tmp_path, rank=1)
    logging.info("a line")
    for handler in root.handlers:
        with suppress(OSError):
            handler.close()
    assert capfd.readouterr().err == ""


def test_curves_that_cannot_be_written_are_a_sentence(tmp_path, monkeypatch, caplog):
    others = []
    monkeypatch.setattr(threading, "excepthook", logbook.in_a_sentence(others.append))
    curves = logbook.open_curves(tmp_path, 0)
    worker = curves.file_writer.event_writer._async_writer._worker
    worker._record_writer = None
    curves.add_scalar("a", 1.0, 1)
    worker.join(60)
    # What is no matter of files is none of its business.
    assert [type(other.exc_value) for other in others] == [AttributeError] and not caplog.messages
    for error, said in ((OSError(28, "No space left on device"), 1), (ValueError(), 0)):
        threading.excepthook(SimpleNamespace(thread=worker, exc_value=error))
        assert sum("curves for tensorboard cannot be written" in line for line in caplog.messages) == 1
        assert len(others) == 2 - said


@pytest.fixture
def own_log(monkeypatch):
    """A root logger that is afterwards as it was."""
    root = logging.getLogger()
    level = root.level
    monkeypatch.setattr(root, "handlers", [])
    yield
    for handler in root.handlers:
        handler.close()
    root.setLevel(level)


@pytest.mark.usefixtures("own_log")
@pytest.mark.parametrize("rank", [0, 1])
def test_every_rank_keeps_a_log_and_the_first_one_speaks(rank, tmp_path, capsys):
    start_log(tmp_path, rank)
    logging.info("something happens")
    assert "INFO something happens\n" in (tmp_path / f"log-{rank}.txt").read_text()
    assert ("something happens" in capsys.readouterr().err) == (rank == 0)


def test_packages_that_are_missing_are_left_out_of_the_versions(monkeypatch):
    monkeypatch.setattr(logbook, "PACKAGES", ("no-such-package", "numpy", "no-other-package"))
    assert list(installed_versions()) == ["python", "numpy"]


@pytest.mark.parametrize("error", [FileNotFoundError("git"), subprocess.CalledProcessError(128, ["git"])])
def test_outside_a_repository_the_commit_is_unknown(monkeypatch, error):
    def run(*_, **__):
        raise error

    monkeypatch.setattr(subprocess, "run", run)
    assert git_commit() == "unknown"


def test_durations_are_readable():
    assert duration(65) == "01:05" and duration(3661.4) == "1:01:01"


def test_what_a_killed_run_has_noted_already_is_not_noted_twice(tmp_path):
    for _ in range(2):
        book = logbook.Logbook(tmp_path, 7, active=True)
        book.metrics("valid", 7, 1.0, {"wer": 3.0})
        book.metrics("train", 7, 1.0, {"loss": 2.0})
        book.close()
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert kinds == ["valid", "train"]
