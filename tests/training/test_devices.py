"""Invariant: a whole update stays on the model's device, and the host does not wait for it per hypothesis."""

from dataclasses import replace

import pytest
import torch
from second_device import SecondDevice
from toy_data import toy_settings

from transducer_gn.config import config_parser, read_config
from transducer_gn.lattice import tiles
from transducer_gn.model.chunk import Chunk
from transducer_gn.search import beam
from transducer_gn.training.clock import Clock
from transducer_gn.training.distributed import World
from transducer_gn.training.schedule import SchedulePoint
from transducer_gn.training.start import start_run
from transducer_gn.training.training_pass import Plan

FINITE_STATE = {"model.predictor.kind": "finite-state", "model.predictor.context": 1}


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    """The search looks at sizes to save work where looking is free, on a CPU; here it must do without. Tiles hold rows
    of several utterances, as on a GPU.
    """
    monkeypatch.setitem(tiles.ACROSS_UTTERANCES, "cpu", True)
    monkeypatch.setattr(tiles, "MORE_TILES", 0)
    monkeypatch.setattr(beam, "may_look", lambda tensor: False)


def whole_step(toy, folder, frames=None, **changes):
    """One forward, backward and update on the second device; returns what the host waited for."""
    # Kernels of k2 and fast_rnnt, where they are installed, are no torch functions: the stand-in loses sight there.
    flags = toy_settings(toy, **{"objective.backend": "torch"} | changes)
    config, _ = read_config(config_parser("test"), flags)
    state = start_run(config, folder, World(), branch_from=None, allow_changed=False)
    learner, batch = state.learner, next(iter(state.batches))
    if frames is not None:
        batch = replace(
            batch, features=batch.features[:, :frames], feature_lengths=batch.feature_lengths.clamp(max=frames)
        )
    with SecondDevice() as device:
        for tensor in [*learner.model.parameters(), *learner.model.buffers()]:
            device.move(tensor)
        moved = {
            name: device.move(getattr(batch, name))
            for name in ("features", "feature_lengths", "tokens", "token_lengths")
        }
        plan = Plan(replace(batch, **moved), Chunk(2, 4), None, seed=0)
        objective = learner.training_pass.train()(plan, SchedulePoint(0.3, 0.05, 10.0), 1.0, Clock(torch.device("cpu")))
        assert device.has(objective.loss)
        objective.loss.backward()
        for parameter in learner.model.parameters():
            device.move(parameter.grad)
        learner.optimiser.step()
        return device.waits, [parameter.grad for parameter in learner.model.parameters()]


@pytest.mark.parametrize(
    "changes", [{}, FINITE_STATE, FINITE_STATE | {"normalisation.exact": "true"}], ids=["lstm", "finite", "exact"]
)
def test_a_whole_update_stays_on_one_device(changes, toy, tmp_path):
    _, gradients = whole_step(toy, tmp_path, **changes)
    assert all(gradient.isfinite().all() for gradient in gradients) and any(gradient.any() for gradient in gradients)


def test_the_host_waits_at_most_once_per_round_of_a_frame(toy, tmp_path):
    (short, _), (long, _) = (whole_step(toy, tmp_path, frames=frames) for frames in (40, 72))
    further_frames, rounds = (72 - 40) // 4, 3
    assert 0 < len(long) - len(short) <= further_frames * rounds


def test_the_stand_in_notices_a_tensor_on_the_wrong_device():
    with SecondDevice() as device:
        there = device.move(torch.ones(3))
        assert (
            device.has(there * 2) and device.has(torch.zeros(2, device=there.device)) and not device.has(torch.zeros(2))
        )
        with pytest.raises(AssertionError, match="add mixes"):
            torch.add(there, torch.ones(3))
        with pytest.raises(AssertionError, match="mixes"):
            there[torch.tensor([0, 1])]
        there + torch.ones(())  # a scalar may be mixed
        torch.ones(3).to(there.device) + there
