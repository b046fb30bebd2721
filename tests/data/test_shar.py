"""Invariant: a Shar export holds the same features; an epoch is the whole corpus, each utterance in one batch of one
worker of one rank, equally many batches each; resuming is exact and opens only what is left.
"""

import json
import shutil
import tarfile
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from transducer_gn.common.errors import UserError
from transducer_gn.config import BatchConfig
from transducer_gn.data.prepared import PreparedData
from transducer_gn.data.shar import ShardedBatches, SharExport, export_shar, read_lane

SETTINGS = BatchConfig(max_duration=10, num_buckets=3, num_workers=0, shar_buffer_size=20)


@pytest.fixture(scope="module")
def exported(prepared, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shar") / "train"
    export_shar(prepared / "cuts_train.jsonl.gz", prepared, folder, shard_size=8, tick_power=-10, jobs=2)
    return folder


@pytest.fixture(scope="module")
def tokenizer(prepared):
    return PreparedData(prepared).tokenizer(60)


def ids_of(ranks):
    return Counter(name for batches in ranks for batch in batches for name in batch.ids)


def test_an_export_holds_the_same_utterances_and_features(exported, prepared):
    original = {cut.id: cut for cut in PreparedData(prepared).train_cuts()}
    everything = np.arange(len(original))
    cuts = [cut for _, _, cut in SharExport(exported).read(everything, range(len(original)))]
    assert [cut.id for cut in cuts] == list(original)
    assert [cut.duration for cut in cuts] == SharExport(exported).durations.tolist()
    for cut in cuts[:5]:
        assert cut.supervisions == original[cut.id].supervisions
        assert np.abs(cut.load_features() - original[cut.id].load_features()).max() < 1e-3


def test_numbers_of_tokens_are_those_of_the_texts(exported, prepared, tokenizer):
    expected = [len(tokenizer.encode(cut.supervisions[0].text)) for cut in PreparedData(prepared).train_cuts()]
    export = SharExport(exported)
    assert export.tokens(tokenizer).tolist() == expected == export.tokens(tokenizer).tolist()


def test_only_shards_with_something_wanted_are_opened(exported, monkeypatch):
    export, opened = SharExport(exported), []
    shard = export._shard
    monkeypatch.setattr(export, "_shard", lambda number: opened.append(number) or shard(number))
    stream = np.concatenate([np.arange(16, 24), np.arange(0, 16)])
    found = [(place, position) for place, position, _ in export.read(stream, {3, 17, 20})]
    assert found == [(1, 17), (4, 20), (11, 3)] and opened == [2, 0]


@pytest.mark.parametrize("workers", [0, 2, 3])
def test_resuming_gives_exactly_the_rest(exported, tokenizer, workers):
    settings = replace(SETTINGS, num_workers=workers)

    def make():
        return ShardedBatches(exported, tokenizer, settings)

    whole = list(make())
    assert len(whole) == make().count(0) > 5
    for stop in (0, 1, 3, 4, len(whole) - 1, len(whole)):
        rest = list(make().starting_at(0, stop))
        assert [batch.ids for batch in rest] == [batch.ids for batch in whole[stop:]]
        assert all(torch.equal(a.features, b.features) for a, b in zip(rest, whole[stop:], strict=True))


@pytest.mark.parametrize(("ranks", "workers"), [(1, 0), (2, 2), (3, 0)])
@pytest.mark.parametrize("limit", [4, 10, 40])
def test_an_epoch_is_the_whole_corpus_in_equally_many_batches(exported, prepared, tokenizer, ranks, workers, limit):
    settings = replace(SETTINGS, num_workers=workers, max_duration=limit)
    made = [ShardedBatches(exported, tokenizer, settings, rank=rank, world_size=ranks) for rank in range(ranks)]
    found = [list(batches) for batches in made]
    assert {len(batches) for batches in found} == {batches.count(0) for batches in made} == {len(found[0])}
    names = ids_of(found)
    originals = {name for name in names if "_dup" not in name}
    assert originals == {cut.id for cut in PreparedData(prepared).train_cuts()} and set(names.values()) == {1}
    # Of at most 4 seconds nearly all batches are single utterances: a lane has nothing to cut, and some come again.
    assert len(names) == len(originals) or limit == 4
    for batch in (batch for batches in found for batch in batches):
        assert len(batch) == 1 or len(batch) * float(batch.durations.max()) <= limit + 1e-3


def test_epochs_differ(exported, tokenizer):
    batches = ShardedBatches(exported, tokenizer, SETTINGS)
    first, second = list(batches), list(batches.starting_at(1))
    assert [batch.ids for batch in first] != [batch.ids for batch in second] and ids_of([first]) == ids_of([second])


def test_utterances_that_cannot_be_used_are_left_out_and_counted(exported, prepared, tokenizer):
    durations = sorted(cut.duration for cut in PreparedData(prepared).train_cuts())
    settings = replace(SETTINGS, max_duration_of_utterance=durations[-4])
    batches = ShardedBatches(exported, tokenizer, settings)
    assert batches.report.too_long == 3 and sum(ids_of([list(batches)]).values()) == len(durations) - 3


def test_no_more_is_held_than_the_settings_say_and_what_fills_no_batch(exported, tokenizer):
    batches = ShardedBatches(exported, tokenizer, replace(SETTINGS, shar_buffer_size=12))
    lane = batches.lanes(0)[0]
    used = np.cumsum(np.diff(lane.plan.borders))
    # Of each of 3 classes of duration at most one batch waits: 10 seconds of utterances of a second or more.
    held = lane.read - np.concatenate([[0], used[:-1]])
    assert held.max() <= 12 + 3 * 10 < len(lane.stream) and lane.read[-1] == len(lane.stream)
    assert all(lane.read[number] >= places for number, places in enumerate(needed(lane)))
    cuts = read_lane(SharExport(batches._export.folder), lane, range(len(lane.plan)))
    assert sum(map(len, cuts)) == len(lane.stream)


def needed(lane):
    """How much of the stream has to be read by each batch."""
    place = {int(position): index for index, position in enumerate(lane.stream)}
    batches = (lane.plan.batch(number) for number in range(len(lane.plan)))
    return [max(place[position] for position, _ in batch) + 1 for batch in batches]


def test_batches_of_another_export_or_number_of_workers_are_refused(exported, prepared, tokenizer, tmp_path):
    identity = ShardedBatches(exported, tokenizer, SETTINGS).identity()
    ShardedBatches(exported, tokenizer, SETTINGS).check_identity(identity)
    with pytest.raises(UserError, match="cannot resume: num_workers was 0 and is now 2"):
        ShardedBatches(exported, tokenizer, replace(SETTINGS, num_workers=2)).check_identity(identity)
    other = tmp_path / "other"
    export_shar(prepared / "cuts_train.jsonl.gz", prepared, other, shard_size=9, tick_power=-10, jobs=1)
    with pytest.raises(UserError, match="cannot resume: shards was"):
        ShardedBatches(other, tokenizer, SETTINGS).check_identity(identity)


def test_too_few_shards_and_missing_exports_are_named(exported, tokenizer, tmp_path):
    with pytest.raises(UserError, match="too few for 100 ranks"):
        ShardedBatches(exported, tokenizer, SETTINGS, world_size=100)
    with pytest.raises(UserError, match="run prepare.sh with --shar"):
        ShardedBatches(tmp_path, tokenizer, SETTINGS)
    with pytest.raises(UserError, match="on_the_fly needs audio"):
        ShardedBatches(exported, tokenizer, replace(SETTINGS, on_the_fly=True))
    (tmp_path / "index.json").write_text(json.dumps({"shards": [[8, 20.0]], "durations": [2.5]}))
    with pytest.raises(UserError, match="older version; run prepare.sh with --shar again"):
        ShardedBatches(tmp_path, tokenizer, SETTINGS)


def test_shards_that_hold_too_little_that_is_usable_are_named(exported, tokenizer):
    with pytest.raises(UserError, match="too little for 1 ranks of 1 workers: 0 utterances"):
        ShardedBatches(exported, tokenizer, replace(SETTINGS, min_duration=50))


@pytest.mark.parametrize("workers", [0, 2])
def test_the_largest_batches_are_those_of_the_epoch(exported, tokenizer, workers):
    settings = replace(SETTINGS, num_workers=workers, num_buckets=1)
    batches = ShardedBatches(exported, tokenizer, settings, rank=1, world_size=2)
    epoch, found = list(batches.starting_at(1)), batches.largest(1)
    whole = max(epoch, key=lambda batch: len(batch) * float(batch.durations.max()))
    longest = max(float(batch.durations.max()) for batch in epoch)
    assert found[0].ids == whole.ids and torch.equal(found[0].features, whole.features)
    assert float(found[-1].durations.max()) == longest
    assert all(any(batch.ids == one.ids for one in epoch) for batch in found)


def spoil_missing(folder):
    (folder / "features.000002.tar").unlink()


def spoil_cut_short(folder):
    path = folder / "features.000002.tar"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def spoil_cut_short_between_members(folder):
    path = folder / "features.000002.tar"
    with tarfile.open(path) as tar:
        path.write_bytes(path.read_bytes()[: tar.getmembers()[4].offset])


def spoil_cuts(folder):
    path = folder / "cuts.000002.jsonl.gz"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def spoil_by_another(folder):
    shutil.copy(folder / "features.000003.tar", folder / "features.000002.tar")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "spoil", [spoil_missing, spoil_cut_short, spoil_cut_short_between_members, spoil_cuts, spoil_by_another]
)
def test_a_damaged_shard_is_named(exported, tokenizer, tmp_path, spoil, workers):
    folder = tmp_path / "train"
    shutil.copytree(exported, folder)
    batches = ShardedBatches(folder, tokenizer, replace(SETTINGS, num_workers=workers))
    spoil(folder)
    with pytest.raises(UserError, match=r"^shard 2 of .*train .*cannot be read beyond \d of its 8.*copy it again"):
        list(batches)
