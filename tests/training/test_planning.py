"""Invariant: a plan depends on the seed, the epoch and the batch's number alone; batches are searched ahead in groups,
at the alpha of the moment when a group is due, and never where nobody needs competitors.
"""

import pytest
import torch
from toy_data import toy_settings

from transducer_gn.config import config_parser, read_config
from transducer_gn.search.competitors import Competitors
from transducer_gn.training.distributed import World
from transducer_gn.training.planning import Planner
from transducer_gn.training.start import start_run
from transducer_gn.training.training_pass import TrainingPass

BATCHES = 6


@pytest.fixture
def searches(monkeypatch):
    """Notes alpha, the mode and the batches at every search; what a batch gets is one sequence: its number."""
    noted = []

    def search_together(self, encoded, batches, alpha):
        before = sum(count for _, _, count in noted)
        noted.append((alpha, self.training, len(batches)))
        return [
            Competitors(
                torch.full((len(batch), 1, 1), number),
                torch.ones(len(batch), 1, dtype=torch.int64),
                torch.zeros(len(batch)),
            )
            for number, batch in enumerate(batches, before + 1)
        ]

    monkeypatch.setattr(TrainingPass, "search_together", search_together)
    return noted


@pytest.fixture
def planner_of(toy, tmp_path):
    def make(first=0, pending=(), world=None, **changes):
        config, _ = read_config(config_parser("test"), toy_settings(toy, **changes))
        state = start_run(config, tmp_path, World(), None, False)
        state.learner.training_pass.train()
        planner = Planner(state.learner.training_pass, config, world or World(), pending)
        batches = list(state.batches.starting_at(0, first))[: BATCHES - first]
        planner.begin(iter(batches), epoch=0, first=first)
        return planner, batches

    return make


def found_by(plans):
    """Numbers of the plans' batches among those that were searched; None without competitors."""
    return [None if plan.competitors is None else int(plan.competitors.tokens[0, 0, 0]) for plan in plans]


def all_plans(planner, alphas):
    plans = []
    for alpha in alphas:
        plans += planner.next_plans(1, alpha)
    return plans


def test_without_look_ahead_nothing_is_searched_before_its_turn(planner_of, searches):
    planner, batches = planner_of()
    plans = all_plans(planner, [0.5] * BATCHES)
    assert [plan.batch.ids for plan in plans] == [batch.ids for batch in batches]
    assert found_by(plans) == [None] * BATCHES and not searches
    assert planner.next_plans(1, 0.5) == []


def test_groups_are_searched_at_the_alpha_of_their_time_in_evaluation_mode(planner_of, searches):
    planner, batches = planner_of(**{"competitors.lookahead": 2})
    plans = all_plans(planner, [1.0, 0.9, 0.8, 0.7, 0.6, 0.5])
    assert [plan.batch.ids for plan in plans] == [batch.ids for batch in batches]
    # The first batch comes at alpha 1; then groups of two, and at the end what is left.
    assert found_by(plans) == [None, 1, 2, 3, 4, 5]
    assert searches == [(0.9, False, 2), (0.7, False, 2), (0.5, False, 1)]
    assert planner._pass.training


def test_several_batches_of_an_update_may_come_from_several_groups(planner_of, searches):
    planner, _ = planner_of(**{"competitors.lookahead": 4})
    assert found_by(planner.next_plans(3, 0.9)) == [1, 2, 3] and len(planner.pending) == 1
    assert found_by(planner.next_plans(5, 0.8)) == [4, 5, 6] and planner.pending == []
    assert searches == [(0.9, False, 4), (0.8, False, 2)]


def test_batches_of_a_group_get_what_a_search_of_their_own_finds(planner_of):
    planner, _ = planner_of(**{"competitors.lookahead": 4})
    plans = planner.next_plans(4, 0.5)
    training_pass = planner._pass.eval()
    assert len({plan.batch.features.shape[1] for plan in plans}) > 1, "batches of different lengths are wanted"
    for plan in plans:
        with torch.no_grad():
            encoded = training_pass.encode(plan.batch, plan.chunk)
            alone = training_pass.search(*encoded, plan.batch, 0.5)
        assert torch.equal(plan.competitors.tokens, alone.tokens)
        assert torch.equal(plan.competitors.lengths, alone.lengths)


def test_the_exact_sum_needs_no_competitors(planner_of, searches):
    exact = {"normalisation.exact": "true", "model.predictor.kind": "finite-state", "model.predictor.context": 1}
    planner, _ = planner_of(**exact | {"competitors.lookahead": 3})
    assert found_by(all_plans(planner, [0.5] * BATCHES)) == [None] * BATCHES and not searches


def test_a_plan_is_the_same_wherever_training_starts_and_differs_between_ranks(planner_of, searches):
    plans = all_plans(planner_of()[0], [1.0] * BATCHES)
    later = all_plans(planner_of(first=4)[0], [1.0] * 2)
    assert [(plan.seed, plan.chunk) for plan in later] == [(plan.seed, plan.chunk) for plan in plans[4:]]
    assert len({plan.seed for plan in plans}) == BATCHES
    other = all_plans(planner_of(world=World(rank=1))[0], [1.0] * BATCHES)
    # Ranks draw the same chunks, so that none waits for another, and everything else of their own.
    assert [plan.chunk for plan in other] == [plan.chunk for plan in plans]
    assert not {plan.seed for plan in other} & {plan.seed for plan in plans}


def test_competitors_from_before_a_stop_go_to_the_batches_that_come_first(planner_of, searches):
    pending = [Competitors(torch.full((1, 1, 1), number), torch.ones(1, 1), torch.zeros(1)) for number in (70, 71)]
    planner, _ = planner_of(first=1, pending=pending, **{"competitors.lookahead": 4})
    assert found_by([*planner._group]) == [70, 71] and len(planner.pending) == 2
    assert found_by(all_plans(planner, [0.4] * 5)) == [70, 71, 1, 2, 3]
