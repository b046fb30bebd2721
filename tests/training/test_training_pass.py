"""Invariant: what is said about a batch's search is what the search found."""

import torch
from toy_data import toy_settings

from transducer_gn.config import config_parser, read_config
from transducer_gn.model.chunk import FULL_CONTEXT
from transducer_gn.search.competitors import Competitors
from transducer_gn.training.clock import Clock
from transducer_gn.training.distributed import World
from transducer_gn.training.schedule import SchedulePoint
from transducer_gn.training.start import start_run
from transducer_gn.training.training_pass import Plan, TrainingPass


def test_references_that_the_search_found_are_counted(toy, tmp_path, monkeypatch):
    config, _ = read_config(config_parser("test"), toy_settings(toy, **{"normalisation.alpha": 0.3}))
    state = start_run(config, tmp_path, World(), branch_from=None, allow_changed=False)
    batch = max(state.batches, key=len)
    found = torch.arange(len(batch)) % 2 == 0
    lists = Competitors(torch.ones(len(batch), 1, 1).long(), torch.ones(len(batch), 1).long(), found)
    monkeypatch.setattr(TrainingPass, "search", lambda *_: lists)
    clock, point = Clock(torch.device("cpu")), SchedulePoint(alpha=0.3, regulariser=0.0)
    objective = state.learner.training_pass(Plan(batch, FULL_CONTEXT, None, seed=0), point, 1.0, clock)
    assert 0 < found.sum() < len(batch)
    assert objective.metrics()["reference_found"] == found.double().mean()
