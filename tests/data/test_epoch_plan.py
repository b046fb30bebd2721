"""Invariant: a plan of a large corpus holds every utterance once, in batches within their limit and of one class of
duration; what cannot be shared out is cut in two, and comes again only where nothing can be cut.
"""

import random
from bisect import bisect_left

import numpy as np
import pytest

from transducer_gn.data.epoch_plan import EpochPlan, Packing, Piece, pack, plan_share, random_order, split_up

DRAW = random.Random(1)
DURATIONS = np.array([round(DRAW.uniform(1, 20), 2) for _ in range(1000)])
PACKING = Packing([5.0, 10.0, 15.0], 60.0)


def batches_of(plan):
    return [[place for place, _ in plan.batch(number)] for number in range(len(plan))]


def test_an_order_is_one_of_its_seed_whatever_the_version():
    assert random_order(8, 1).tolist() == [2, 4, 7, 5, 0, 6, 3, 1]
    assert sorted(random_order(1000, 5)) == list(range(1000)) and random_order(9, 2).tolist() != list(range(9))


def test_batches_are_full_of_one_class_and_within_the_limit():
    batches, kinds = pack(DURATIONS, PACKING, seed=3)
    assert sorted(np.concatenate(batches)) == list(range(1000)) and list(kinds) == sorted(kinds)
    for number, (batch, kind) in enumerate(zip(batches, kinds, strict=True)):
        seconds = DURATIONS[batch]
        assert {bisect_left(PACKING.bins, one) for one in seconds} == {kind}
        assert len(batch) * seconds.max() <= 60
        if number + 1 < len(batches) and kinds[number + 1] == kind:
            # The next utterance of the class would not have fitted.
            both = np.append(seconds, DURATIONS[batches[number + 1][0]])
            assert len(both) * both.max() > 60


def test_an_utterance_longer_than_a_batch_is_one():
    assert [batch.tolist() for batch in pack(np.array([100.0, 200.0]), PACKING, seed=0)[0]] in ([[0], [1]], [[1], [0]])


@pytest.mark.parametrize("ranks", [1, 2, 7])
def test_ranks_have_batches_of_the_same_class_at_nearly_every_step(ranks):
    plans = [batches_of(plan_share(DURATIONS, PACKING, 9, rank, ranks)) for rank in range(ranks)]
    assert len({len(plan) for plan in plans}) == 1
    assert sorted(place for plan in plans for batch in plan for place in batch) == list(range(1000))
    classes = [{bisect_left(PACKING.bins, DURATIONS[batch[0]]) for batch in step} for step in zip(*plans, strict=True)]
    assert sum(len(step) > 1 for step in classes) <= len(PACKING.bins) + 1
    # Classes take turns in random order.
    assert len({min(step) for step in classes[:10]}) > 1


def test_another_seed_is_another_plan():
    plans = [batches_of(plan_share(DURATIONS, PACKING, seed, 0, 2)) for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]


@pytest.mark.parametrize(
    ("sizes", "wanted", "found"),
    [
        ([3, 3], 2, [("012", ""), ("345", "")]),
        ([1, 3], 3, [("0", ""), ("1", ""), ("23", "")]),
        ([2, 1], 5, [("0", ""), ("1", ""), ("2", ""), ("0", "_dup0"), ("1", "_dup0")]),
        ([1], 3, [("0", ""), ("0", "_dup0"), ("0", "_dup1")]),
    ],
)
def test_batches_are_cut_in_two_before_any_comes_again(sizes, wanted, found):
    borders = np.cumsum([0, *sizes])
    batches = [np.arange(start, start + size) for start, size in zip(borders, sizes, strict=False)]
    pieces = split_up(batches, wanted)
    assert [("".join(map(str, piece.positions)), piece.copy) for piece in pieces] == found
    assert all(set(piece.positions) <= set(batches[piece.origin]) for piece in pieces)


@pytest.mark.parametrize(("utterances", "ranks"), [(3, 8), (1, 4)])
def test_fewer_utterances_than_ranks_come_again_under_other_names(utterances, ranks):
    plans = [plan_share(DURATIONS[:utterances], PACKING, 0, rank, ranks) for rank in range(ranks)]
    names = [f"{place}{copy}" for plan in plans for number in range(len(plan)) for place, copy in plan.batch(number)]
    assert [len(plan) for plan in plans] == [1] * ranks and len(set(names)) == ranks
    assert {name for name in names if "_" not in name} == {str(place) for place in range(utterances)}


def test_the_largest_of_no_batches_is_none():
    assert EpochPlan.of([]).largest(DURATIONS) == []
    one = EpochPlan.of([Piece(np.array([0, 1]), 0), Piece(np.array([2]), 1)])
    assert one.largest(np.array([2.0, 2.0, 3.0])) == [0, 1] and one.largest(np.array([2.0, 4.0, 3.0])) == [0]
