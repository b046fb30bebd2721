"""Invariant: a Shar export holds the same features; each worker of each rank has its own shards; resuming is exact."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from lhotse import CutSet

from transducer_gn.common.errors import UserError
from transducer_gn.config import BatchConfig
from transducer_gn.data.prepared import PreparedData
from transducer_gn.data.shar import LaneShards, ShardedBatches, export_shar, read_index

SETTINGS = BatchConfig(max_duration=10, num_buckets=3, num_workers=0, shar_buffer_size=20)


@pytest.fixture(scope="module")
def exported(prepared, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shar") / "train"
    export_shar(prepared / "cuts_train.jsonl.gz", prepared, folder, shard_size=8, tick_power=-10, jobs=2)
    return folder


def test_an_export_holds_the_same_utterances_and_features(exported, prepared):
    original = {cut.id: cut for cut in PreparedData(prepared).train_cuts()}
    cuts = list(read_all(exported))
    assert [cut.id for cut in cuts] == list(original)
    for cut in cuts[:5]:
        assert cut.supervisions == original[cut.id].supervisions
        assert np.abs(cut.load_features() - original[cut.id].load_features()).max() < 1e-3


def read_all(folder):
    shards = len(read_index(folder)["shards"])
    fields = {
        "cuts": [str(folder / f"cuts.{number:06d}.jsonl.gz") for number in range(shards)],
        "features": [str(folder / f"features.{number:06d}.tar") for number in range(shards)],
    }
    return CutSet.from_shar(fields=fields)


def test_lanes_read_every_shard_once_and_none_twice(exported):
    shards = len(read_index(exported)["shards"])
    lanes = [[cut.id for cut in LaneShards(exported, shards, lane, 3, seed=1)] for lane in range(3)]
    together = [name for lane in lanes for name in lane]
    assert sorted(together) == sorted(cut.id for cut in read_all(exported))


@pytest.mark.parametrize("workers", [0, 2])
def test_resuming_gives_exactly_the_rest(exported, prepared, workers):
    tokenizer = PreparedData(prepared).tokenizer(60)
    settings = replace(SETTINGS, num_workers=workers)

    def make():
        return ShardedBatches(exported, tokenizer, settings)

    whole = list(make())
    assert len(whole) == make().batches_per_epoch > 5
    for stop in (0, 3, len(whole) - 1):
        rest = list(make().starting_at(0, stop))
        assert [batch.ids for batch in rest] == [batch.ids for batch in whole[stop:]]
        assert all(torch.equal(a.features, b.features) for a, b in zip(rest, whole[stop:], strict=True))


def test_ranks_have_equally_many_batches_and_share_no_utterance_within_a_pass(exported, prepared):
    tokenizer = PreparedData(prepared).tokenizer(60)
    # Longer batches than the lane has audio for half an epoch: nobody begins a second pass.
    ranks = [list(ShardedBatches(exported, tokenizer, SETTINGS, rank=rank, world_size=2)) for rank in range(2)]
    assert len(ranks[0]) == len(ranks[1])
    first_half = [{name for batch in batches[: len(batches) // 2] for name in batch.ids} for batches in ranks]
    assert not first_half[0] & first_half[1]


def test_too_few_shards_and_missing_exports_are_named(exported, prepared, tmp_path):
    tokenizer = PreparedData(prepared).tokenizer(60)
    with pytest.raises(UserError, match="too few for 100 ranks"):
        ShardedBatches(exported, tokenizer, SETTINGS, world_size=100)
    with pytest.raises(UserError, match="run prepare.sh with --shar"):
        ShardedBatches(tmp_path, tokenizer, SETTINGS)
    with pytest.raises(UserError, match="on_the_fly needs audio"):
        ShardedBatches(exported, tokenizer, replace(SETTINGS, on_the_fly=True))


def test_a_worker_whose_shards_hold_nothing_usable_says_so(exported, prepared):
    tokenizer = PreparedData(prepared).tokenizer(60)
    with pytest.raises(UserError, match="too short, too long or too dense"):
        list(ShardedBatches(exported, tokenizer, replace(SETTINGS, min_duration=50)))
