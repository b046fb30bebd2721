"""Invariant: ranks exchange gradients once per update, at its last batch; its size follows the schedule; errors are
counted of the lists that are scored; metrics do not depend on how many batches they are taken over.
"""

import pytest
import torch
from toy_data import toy_settings

from transducer_gn.config import config_parser, read_config
from transducer_gn.data.batches import Batch
from transducer_gn.model.chunk import Chunk
from transducer_gn.search.competitors import Competitors
from transducer_gn.training.clock import Clock
from transducer_gn.training.distributed import World
from transducer_gn.training.learner import Learner
from transducer_gn.training.objective import SUMS, metrics
from transducer_gn.training.schedule import SchedulePoint
from transducer_gn.training.start import start_run
from transducer_gn.training.training_pass import Plan

CLOCK = Clock(torch.device("cpu"))


def state_of(toy, folder, **changes):
    config, _ = read_config(config_parser("test"), toy_settings(toy, **changes))
    return start_run(config, folder, World(), branch_from=None, allow_changed=False)


def test_the_last_batch_of_an_update_is_known_as_such(toy, tmp_path, monkeypatch):
    learner, batches = (state := state_of(toy, tmp_path)).learner, iter(state.batches)
    plans = [Plan(next(batches), Chunk(2, 4), None, seed=number) for number in range(3)]
    backward, seen = learner.backward, []

    def noting(plan, *arguments, is_last):
        seen.append((plan.seed, is_last))
        return backward(plan, *arguments, is_last=is_last)

    monkeypatch.setattr(learner, "backward", noting)
    learner.update(plans, SchedulePoint(1.0, 0.0), 1.0, CLOCK)
    assert seen == [(0, False), (1, False), (2, True)]


def test_an_update_is_smaller_the_nearer_the_end_is(toy, tmp_path):
    moved = {}
    for cooldown in (1.0, 0.25):
        state = state_of(toy, tmp_path, **{"optimiser.weight_decay": 0})
        before = [parameter.detach().clone() for parameter in state.learner.model.parameters()]
        plan = Plan(next(iter(state.batches)), Chunk(2, 4), None, seed=0)
        state.learner.update([plan], SchedulePoint(1.0, 0.0, cooldown=cooldown), 1.0, CLOCK)
        after = state.learner.model.parameters()
        moved[cooldown] = sum(float((x.detach() - y).abs().sum()) for x, y in zip(after, before, strict=True))
    assert moved[0.25] == pytest.approx(moved[1.0] / 4, rel=1e-3)


def test_at_the_end_nothing_moves_and_nothing_shrinks(toy, tmp_path):
    state = state_of(toy, tmp_path, **{"optimiser.weight_decay": 0.5, "optimiser.target_rms": 1e-6})
    before = [parameter.detach().clone() for parameter in state.learner.model.parameters()]
    plan = Plan(next(iter(state.batches)), Chunk(2, 4), None, seed=0)
    state.learner.update([plan], SchedulePoint(1.0, 0.0, cooldown=0.0), 1.0, CLOCK)
    assert all(torch.equal(x, y) for x, y in zip(state.learner.model.parameters(), before, strict=True))


def test_numbers_too_small_for_full_precision_cost_no_time_in_training(toy, tmp_path):
    smallest = torch.tensor(torch.finfo(torch.float32).tiny)
    if not torch.set_flush_denormal(False):
        pytest.skip("this processor cannot be told")
    assert smallest / 2 > 0
    state_of(toy, tmp_path)
    assert smallest / 2 == 0


@pytest.mark.parametrize(("device", "calls"), [("cpu", 1), ("meta", 0)])
def test_training_on_a_cpu_keeps_the_memory_that_it_frees(toy, tmp_path, monkeypatch, device, calls):
    noted = []
    monkeypatch.setattr("transducer_gn.training.learner.keep_freed_memory", lambda: noted.append(device))
    config, _ = read_config(config_parser("test"), toy_settings(toy))
    Learner(config, World(device=torch.device(device)))
    assert noted == [device] * calls


def test_expected_errors_are_those_of_the_lists_that_are_scored(toy, tmp_path):
    state = state_of(toy, tmp_path, **{"normalisation.alpha": 0.0, "mwer.weight": 0.5, "mwer.scores": "raw"})
    batch = next(iter(state.batches))
    one = Batch(**{name: getattr(batch, name)[:1] for name in Batch.__dataclass_fields__})
    nothing = Competitors(
        torch.zeros(1, 1, 0, dtype=torch.long), torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, dtype=torch.bool)
    )
    training_pass = state.learner.training_pass.eval()
    with torch.no_grad():
        # So many alignments has the reference that the empty sequence would have no share to speak of.
        state.learner.model.joiner.bias_offsets[1:] = -14 / int(one.token_lengths)
        found = training_pass(Plan(one, Chunk(2, 4), nothing, seed=0), SchedulePoint(0.0, 0.0, mwer=0.5), 1.0, CLOCK)
    # The empty sequence has all words wrong and the reference none, so that their shares of Z are the errors per word.
    values = found.metrics()
    assert values["expected_errors"] == pytest.approx(1 - values["reference_share"], rel=1e-4)
    assert 0.1 < values["reference_share"] < 0.9


def test_metrics_of_a_batch_twice_are_those_of_the_batch():
    once = {name: torch.tensor(float(number)) for number, name in enumerate(SUMS, 3)}
    twice = {name: 2 * value for name, value in once.items()}
    assert metrics(twice) == pytest.approx(metrics(once), rel=1e-12) and len(metrics(once)) > 5
