"""Invariant: a plan of a small corpus has exactly the batches of lhotse's samplers; every utterance is in one batch of
one rank, all ranks have equally many in training, and classes of duration hold about the same amount of audio.
"""

import random
import warnings
from bisect import bisect_right
from itertools import islice

import numpy as np
import pytest
from lhotse import CutSet, MonoCut
from lhotse.dataset import DynamicBucketingSampler, DynamicCutSampler

from transducer_gn.common.seeds import stable_seed
from transducer_gn.config import BatchConfig
from transducer_gn.data import epoch_plan
from transducer_gn.data.sampling import EpochSampler, duration_bins

DRAW = random.Random(0)
DURATIONS = [round(DRAW.uniform(1, 20), 2) for _ in range(500)]
CUTS = CutSet.from_cuts(MonoCut(f"cut-{index}", 0.0, seconds, 0, []) for index, seconds in enumerate(DURATIONS))
SETTINGS = BatchConfig(max_duration=60, num_buckets=6, buffer_size=200, seed=3)


def planned(rank=0, world_size=1, epoch=0, settings=SETTINGS, durations=DURATIONS, training=True):
    plan = EpochSampler(np.array(durations), settings, training, rank, world_size).plan(epoch)
    return [[f"cut-{place}{copy}" for place, copy in plan.batch(number)] for number in range(len(plan))]


@pytest.mark.parametrize(("world_size", "utterances"), [(1, 500), (2, 500), (3, 500), (8, 5), (8, 1), (4, 0)])
@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_small_corpus_has_the_batches_of_lhotses_sampler_run_on_its_cuts(world_size, utterances, epoch):
    cuts, durations = CUTS.subset(first=utterances) if utterances else CutSet(), DURATIONS[:utterances]
    for rank in range(world_size):
        sampler = DynamicBucketingSampler(
            cuts,
            shuffle=True,
            duration_bins=duration_bins(durations, 6),
            max_duration=60,
            buffer_size=200,
            seed=stable_seed("order", 3, epoch),
            rank=rank,
            world_size=world_size,
        )
        assert planned(rank, world_size, epoch, durations=durations) == [[cut.id for cut in batch] for batch in sampler]


def test_evaluation_has_the_batches_of_lhotses_sampler_in_turn():
    for rank in range(3):
        with warnings.catch_warnings(action="ignore"):
            sampler = DynamicCutSampler(CUTS, max_duration=60, shuffle=False, rank=0, world_size=1)
        expected = [[cut.id for cut in batch] for batch in islice(sampler, rank, None, 3)]
        assert planned(rank, 3, training=False) == expected


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("world_size", [1, 3, 8])
def test_ranks_share_out_all_utterances_in_equally_many_batches(large, world_size, monkeypatch):
    if large:
        monkeypatch.setattr(epoch_plan, "SMALL_CORPUS", 100)
    ranks = [planned(rank, world_size, epoch=2) for rank in range(world_size)]
    assert len({len(batches) for batches in ranks}) == 1 and all(batch for batches in ranks for batch in batches)
    together = [name for batches in ranks for batch in batches for name in batch]
    assert sorted(name for name in together if "_dup" not in name) == sorted(cut.id for cut in CUTS)
    # lhotse repeats what it cannot share out; a large corpus has always a batch that can be cut in two.
    assert len(together) - len(CUTS) < (1 if large else world_size)


def test_a_plan_is_made_once_for_an_epoch(monkeypatch):
    sampler = EpochSampler(np.array(DURATIONS), SETTINGS, True)
    first = sampler.plan(1)
    monkeypatch.setattr(sampler, "_make_plan", None)
    assert sampler.plan(1) is first
    with pytest.raises(TypeError):
        sampler.plan(2)


@pytest.mark.parametrize("buckets", [2, 5, 10])
def test_classes_hold_about_the_same_amount_of_audio(buckets):
    draw = random.Random(0)
    durations = [draw.uniform(1, 20) for _ in range(3000)]
    bins = duration_bins(durations, buckets)
    assert len(bins) == buckets - 1 and bins == sorted(bins)
    totals = [0.0] * buckets
    for duration in durations:
        totals[bisect_right(bins, duration)] += duration
    assert max(totals) < 1.05 * min(totals)


def test_few_utterances_or_one_class_need_no_borders():
    assert duration_bins([1.0, 2.0, 3.0], 1) == duration_bins([1.0], 5) == duration_bins([], 5) == []
