"""Invariant: what is tried before training needs as much memory as anything that may come, and moves nothing."""

from dataclasses import replace

import torch
from toy_data import toy_settings

from transducer_gn.config import config_parser, read_config
from transducer_gn.training import learner
from transducer_gn.training.check import scan_memory, seconds_per_update
from transducer_gn.training.distributed import World
from transducer_gn.training.start import start_run
from transducer_gn.training.training_pass import TrainingPass


def state_of(toy, folder, **changes):
    config, _ = read_config(config_parser("test"), toy_settings(toy, **changes))
    return config, start_run(config, folder, World(), branch_from=None, allow_changed=False)


def test_the_memory_scan_tries_competitors_as_long_as_is_allowed(toy, tmp_path, monkeypatch):
    config, state = state_of(toy, tmp_path, **{"normalisation.alpha": 0.3})
    tried, forward = [], TrainingPass.forward

    def noting(self, plan, *rest):
        objective = forward(self, plan, *rest)
        tried.append((plan, objective))
        return objective

    monkeypatch.setattr(TrainingPass, "forward", noting)
    scan_memory(config, state)
    assert tried
    for plan, objective in tried:
        limits = torch.tensor([2 * length + 10 for length in plan.batch.token_lengths.tolist()])
        assert torch.equal(plan.competitors.lengths, limits[:, None].expand(-1, 3))
        # All of them are distinct and cut.
        assert objective.sums["competitors"] == objective.sums["cut"] == 3 * len(plan.batch)
    assert all(parameter.grad is None for parameter in state.learner.model.parameters())


def test_local_training_has_no_competitors_to_try(toy, tmp_path, monkeypatch):
    config, state = state_of(toy, tmp_path)
    monkeypatch.setattr(learner, "longest_competitors", None)
    scan_memory(config, state)


def test_times_are_of_the_updates_after_the_first(toy, tmp_path, monkeypatch):
    config, state = state_of(toy, tmp_path)
    state.progress.batches_in_epoch = 7
    ticks = iter([0.0, 100.0, 101.0, 103.0, 106.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(ticks))
    monkeypatch.setattr(state.learner, "update", lambda *_: None)
    assert seconds_per_update(config, state, World(), 1.0) == 2.0
    ahead = replace(config, competitors=replace(config.competitors, lookahead=2))
    ticks = iter([0.0, 1.0, 2.0, 3.0, 8.0])
    # With a search ahead of several updates, the first bears what belongs to all.
    assert seconds_per_update(ahead, state, World(), 0.3) == 2.0
