"""Invariant: what is tried before training needs as much memory as anything that may come, and moves nothing."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from toy_data import toy_settings

from transducer_gn.config import config_parser, read_config
from transducer_gn.recognition.checkpoint import load_checkpoint
from transducer_gn.training.check import (
    describe_competitors,
    describe_device,
    describe_disk,
    scan_memory,
    seconds_per_update,
)
from transducer_gn.training.distributed import World
from transducer_gn.training.start import start_run
from transducer_gn.training.training_pass import TrainingPass


def state_of(toy, folder, **changes):
    config, _ = read_config(config_parser("test"), toy_settings(toy, **changes))
    return config, start_run(config, folder, World(), branch_from=None, allow_changed=False)


@pytest.fixture
def tried(monkeypatch):
    """The passes that were made, as (plan, objective)."""
    made, forward = [], TrainingPass.forward

    def noting(self, plan, *rest):
        objective = forward(self, plan, *rest)
        made.append((plan, objective))
        return objective

    monkeypatch.setattr(TrainingPass, "forward", noting)
    return made


def test_the_memory_scan_tries_competitors_as_long_as_is_allowed(toy, tmp_path, tried):
    config, state = state_of(toy, tmp_path, **{"normalisation.alpha": 0.3})
    scan_memory(config, state)
    assert tried
    for plan, objective in tried:
        limits = torch.tensor([2 * length + 10 for length in plan.batch.token_lengths.tolist()])
        assert torch.equal(plan.competitors.lengths, limits[:, None].expand(-1, 3))
        # All of them are distinct and cut.
        assert objective.sums["competitors"] == objective.sums["cut"] == 3 * len(plan.batch)
    assert all(parameter.grad is None for parameter in state.learner.model.parameters())


def test_local_training_has_no_competitors_to_try(toy, tmp_path, tried):
    config, state = state_of(toy, tmp_path)
    scan_memory(config, state)
    assert tried and all(plan.competitors is None for plan, _ in tried)


@pytest.mark.parametrize(
    ("changes", "is_named"),
    [
        ({}, False),
        ({"normalisation.alpha": 0.3}, True),
        ({"mwer.weight": 0.5}, True),
        ({"normalisation.alpha": 0.3, "normalisation.exact": "true", "model.predictor.kind": "finite-state"}, False),
    ],
)
def test_competitors_are_named_where_some_are_tried(toy, changes, is_named):
    config, _ = read_config(config_parser("test"), toy_settings(toy, **changes))
    assert ("3 competitors of 2 times" in describe_competitors(config)) == is_named
    assert is_named or describe_competitors(config) == ""


def test_a_processor_is_described_by_its_threads(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 5)
    assert describe_device(torch.device("cpu")) == f"the processor, 5 threads each; torch {torch.__version__}"


def test_a_gpu_is_described_by_its_name_and_memory(monkeypatch):
    properties = SimpleNamespace(name="NVIDIA A100", total_memory=40 * 10**9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert describe_device(torch.device("cuda", 0)) == f"NVIDIA A100 of 40.0 GB each; torch {torch.__version__}"


def tensors_in(value):
    """All tensors of more than one number in nested dictionaries."""
    if isinstance(value, dict):
        return [tensor for part in value.values() for tensor in tensors_in(part)]
    return [value] if isinstance(value, torch.Tensor) and value.numel() > 1 else []


def test_a_checkpoint_takes_the_disk_that_was_announced(toy, local_run, tmp_path):
    config, _ = read_config(config_parser("test"), toy_settings(toy))
    saved = load_checkpoint(local_run / "epoch-1.pt")
    held = sum(x.nbytes for x in tensors_in({1: saved.model, 2: saved.average, 3: saved.training.optimiser}))
    parameters = sum(x.numel() for x in saved.model.values())
    # As if there were a million times as many of everything.
    announced = describe_disk(config, tmp_path / "not" / "yet", 10**6 * parameters)
    assert float(announced.partition(" GB per checkpoint")[0]) == pytest.approx(held * 10**6 / 10**9, rel=0.02)


def test_times_are_of_the_updates_after_the_first(toy, tmp_path, monkeypatch):
    config, state = state_of(toy, tmp_path)
    state.progress.batches_in_epoch = 7
    ticks = iter([0.0, 100.0, 101.0, 103.0, 106.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(ticks))
    modes = []
    monkeypatch.setattr(state.learner, "update", lambda *_: modes.append(state.learner.training_pass.training))
    state.learner.training_pass.eval()
    assert seconds_per_update(config, state, World(), 1.0) == 2.0
    ahead = replace(config, competitors=replace(config.competitors, lookahead=2))
    ticks = iter([0.0, 1.0, 2.0, 3.0, 8.0])
    # With a search ahead of several updates, the first bears what belongs to all.
    assert seconds_per_update(ahead, state, World(), 0.3) == 2.0
    assert modes and all(modes)
