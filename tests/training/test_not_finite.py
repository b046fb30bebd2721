"""Invariant: wherever a number that is not finite appears (features, parameters, half precision, loss, gradient), the
batch is kept, named and left out on all ranks alike, the others are trained on, and too many of them end training.
"""

import json
import logging
import math
import os
import shutil
import socket
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.multiprocessing as multiprocessing
from lhotse import load_manifest
from toy_data import parameters_of, toy_settings

from transducer_gn.common.errors import UserError
from transducer_gn.config import config_parser, read_config
from transducer_gn.training.distributed import World, join_world
from transducer_gn.training.trainer import Trainer

TENTH = "train-9"
ONE_EPOCH = {
    "training.epochs": 1,
    "training.save_interval": 1,
    "training.keep_last": 100,
}
GLOBAL = {
    "normalisation.alpha": 0.3,
    "normalisation.alpha_delay": 0.0,
    "normalisation.alpha_per_epoch": 100.0,
    "normalisation.regulariser": 0.05,
}
WAYS = {
    "local": {},
    "competitors": GLOBAL,
    "ahead": GLOBAL | {"competitors.lookahead": 3},
    "exact": GLOBAL
    | {"normalisation.exact": "true", "model.predictor.kind": "finite-state", "model.predictor.context": 1},
}


@pytest.fixture(autouse=True)
def quiet():
    logging.getLogger().setLevel(logging.WARNING)


@pytest.fixture
def spoilt(toy, tmp_path):
    """A function that gives toy data in which one utterance's features are something else."""

    def make(change, part="train", utterance=TENTH):
        folder = tmp_path / "data"
        shutil.copytree(toy.folder, folder)
        manifest = folder / ("cuts_train.jsonl.gz" if part == "train" else f"fbank/cuts_{part}.jsonl.gz")
        cuts = load_manifest(manifest)
        features = cuts[utterance].features
        path = folder / "features" / part / features.storage_key
        np.save(path, change(np.load(path)))
        storage = str(folder / "features" / part)
        cuts.map(lambda cut: with_storage(cut, storage)).to_jsonl(manifest)
        return replace(toy, folder=folder)

    return make


def with_storage(cut, storage):
    cut.features.storage_path = storage
    return cut


def run(data, folder, world=None, before=lambda trainer: None, **changes):
    """Train in this process; the trainer's `counted` are the updates that were left out, in any epoch."""
    config, _ = read_config(config_parser("test"), toy_settings(data, **ONE_EPOCH | changes))
    folder.mkdir(exist_ok=True)
    trainer = Trainer(config, folder, world or World())
    before(trainer)
    trainer.counted, skipped = [], trainer.state.watch.skipped

    def noting(step):
        trainer.counted.append(step)
        skipped(step)

    trainer.state.watch.skipped = noting
    trainer.run()
    return trainer


def kept(folder):
    """The batches that were kept, by file name."""
    return {path.name: torch.load(path, weights_only=True) for path in sorted(folder.glob("bad-batch-*.pt"))}


def assert_one_is_left_out(folder, trainer, log):
    """One update of all was left out and its batch kept; the others moved the parameters, and all is finite."""
    ((name, batch),) = kept(folder).items()
    step = int(name.split("-")[2])
    assert TENTH in batch["ids"] and TENTH in log and name in log
    assert trainer.counted == [step]
    last = trainer.state.progress.step
    assert last > 3
    states = [parameters_of(folder / f"checkpoint-{n}.pt") for n in range(1, last + 1)]
    for n, (before, after) in enumerate(pairwise(states), 2):
        moved = any(not torch.equal(before[key], after[key]) for key in before)
        assert moved == (n != step), n
    assert all(value.isfinite().all() for value in states[-1].values())
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert all(math.isfinite(value) for line in lines for value in line.values() if isinstance(value, float))
    return step


def one_frame(value):
    def change(features):
        features[20] = value
        return features

    return change


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("value", [math.nan, math.inf], ids=["nan", "inf"])
def test_features_that_are_not_finite(value, way, spoilt, tmp_path, caplog):
    trainer = run(spoilt(one_frame(value)), tmp_path / "exp", **WAYS[way])
    step = assert_one_is_left_out(tmp_path / "exp", trainer, caplog.text)
    assert f"update {step}" in caplog.text and f"features of {TENTH} hold NaN or inf" in caplog.text


def scaled_by(scale):
    """Begin with this scale of losses."""

    def before(trainer):
        trainer.state.learner.scaler = torch.amp.GradScaler("cpu", init_scale=scale)

    return before


@pytest.mark.parametrize("way", ["local", "competitors"])
def test_overflow_of_half_precision(way, spoilt, tmp_path, caplog):
    data = spoilt(lambda features: features * np.float32(1e6))
    trainer = run(data, tmp_path / "exp", before=scaled_by(16), **WAYS[way], **{"training.precision": "float16"})
    assert_one_is_left_out(tmp_path / "exp", trainer, caplog.text)
    assert "float16" in caplog.text
    # It was not the scale of the loss that was too large.
    assert trainer.state.learner.scaler.get_scale() == 16


def test_a_gradient_that_overflows_only_because_of_its_scale_is_the_scalers_business(toy, tmp_path, caplog):
    trainer = run(toy, tmp_path / "exp", before=scaled_by(2.0**125), **{"training.precision": "float16"})
    assert not trainer.counted and not kept(tmp_path / "exp")
    assert trainer.state.learner.scaler.get_scale() < 2.0**125


def spoil_parameters(after, value):
    """Make a parameter something else once so many updates are made."""

    def before(trainer):
        learner = trainer.state.learner
        move, count = learner._move, iter(range(1, 1000))

        def and_spoil(*arguments):
            move(*arguments)
            if next(count) == after:
                with torch.no_grad():
                    next(learner.model.joiner.parameters()).view(-1)[0] = value

        learner._move = and_spoil

    return before


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("value", [math.nan, math.inf], ids=["nan", "inf"])
def test_parameters_that_are_not_finite_end_training_before_they_are_saved(value, way, toy, tmp_path, caplog):
    settings = WAYS[way] | {"training.save_interval": 2}
    with pytest.raises(UserError, match=r"parameters.*joiner.*after update 3.*checkpoint-2\.pt"):
        run(toy, tmp_path / "exp", before=spoil_parameters(3, value), **settings)
    found = {path.name: parameters_of(path) for path in (tmp_path / "exp").glob("checkpoint-*.pt")}
    assert found.keys() == {"checkpoint-2.pt"}
    assert all(value.isfinite().all() for value in found["checkpoint-2.pt"].values())


def spoil_losses(change, *updates):
    """Change what a forward pass gives in these updates."""

    def before(trainer):
        learner, count = trainer.state.learner, iter(range(1, 1000))
        forward = learner.training_pass.forward

        def changed(*arguments):
            objective = forward(*arguments)
            return change(objective) if learner.training_pass.training and next(count) in updates else objective

        learner.training_pass.forward = changed

    return before


def infinite_value(objective):
    """A loss as that of a reference without any alignment: infinite, with a finite gradient."""
    return replace(objective, loss=objective.loss + torch.tensor(math.inf))


class BadGradient(torch.autograd.Function):
    """The identity with a gradient that is none."""

    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * math.nan


def bad_gradient(objective):
    return replace(objective, loss=BadGradient.apply(objective.loss))


@pytest.mark.parametrize("change", [infinite_value, bad_gradient])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_loss_or_a_gradient_that_is_not_finite(change, accumulate, toy, tmp_path, caplog):
    settings = {"training.accumulate": accumulate, "training.memory_scan": "false"}
    trainer = run(toy, tmp_path / "exp", before=spoil_losses(change, 2 * accumulate), **settings)
    assert trainer.counted == [2]
    before, after = (parameters_of(tmp_path / "exp" / f"checkpoint-{n}.pt") for n in (1, 2))
    assert all(torch.equal(before[name], after[name]) for name in before)
    # Whose gradient it was cannot be told: all of them are kept.
    assert len(kept(tmp_path / "exp")) == (accumulate if change is bad_gradient else 1)
    for batch in kept(tmp_path / "exp").values():
        assert all(name in caplog.text for name in batch["ids"])


def test_too_many_in_one_epoch_end_training(toy, tmp_path):
    settings = {"training.memory_scan": "false", "training.max_bad_batches": 3}
    with pytest.raises(UserError, match="3 updates of this epoch.*lower optimiser.initial_lr"):
        run(toy, tmp_path / "exp", before=spoil_losses(infinite_value, 2, 3, 5), **settings)


def test_one_bad_utterance_does_not_end_a_long_run(spoilt, tmp_path):
    settings = {"training.epochs": 3, "training.max_bad_batches": 2, "training.save_interval": 1000}
    trainer = run(spoilt(one_frame(math.nan)), tmp_path / "exp", **settings)
    assert trainer.state.progress.epoch == 3 and len(kept(tmp_path / "exp")) == 3


def test_utterances_of_the_dev_set_are_named_and_left_out_of_validation(spoilt, toy, tmp_path, caplog):
    data = spoilt(one_frame(math.nan), part="dev", utterance="dev-2")
    settings = {"training.validation_utterances": 12, "data.batches.max_duration": 2}
    run(data, tmp_path / "exp", **settings)
    assert "dev-2" in caplog.text and "validation" in caplog.text
    lines = [json.loads(line) for line in (tmp_path / "exp" / "metrics.jsonl").read_text().splitlines()]
    assert all(math.isfinite(line["wer"]) and math.isfinite(line["loss"]) for line in lines if line["kind"] == "valid")


def run_rank(rank, port, data, folder, way):
    torch.set_num_threads(1)
    variables = {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in variables.items()})
    with join_world("cpu", 60) as world:
        trainer = run(data, Path(folder), world, **WAYS[way])
        (Path(folder) / f"counted-{rank}").write_text(str(len(trainer.counted)))


@pytest.mark.parametrize("way", ["local", "competitors"])
def test_two_ranks_leave_out_the_same_update(way, spoilt, tmp_path):
    data = spoilt(one_frame(math.nan))
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    multiprocessing.spawn(run_rank, (port, data, str(tmp_path / "exp"), way), nprocs=2)
    folder = tmp_path / "exp"
    assert [(folder / f"counted-{rank}").read_text() for rank in (0, 1)] == ["1", "1"]
    # Only the rank that had the utterance keeps it.
    ((name, batch),) = kept(folder).items()
    assert TENTH in batch["ids"]
    step = int(name.split("-")[2])
    before, after, later = (parameters_of(folder / f"checkpoint-{n}.pt") for n in (step - 1, step, step + 1))
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert any(not torch.equal(after[key], later[key]) for key in after)
