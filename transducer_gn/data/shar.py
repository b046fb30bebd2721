"""Training from Shar: features and manifests in tar files that each worker of each rank reads from start to end.

For corpora on network disks or object stores, where reading many small pieces at random is slow.
"""

import json
import random
import shutil
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from math import ceil
from pathlib import Path
from typing import Any

import torch
from lhotse import CutSet
from lhotse.cut import Cut, MonoCut
from lhotse.shar.utils import to_shar_placeholder
from lhotse.shar.writers import ArrayTarWriter
from lhotse.utils import fastcopy
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from transducer_gn.common.errors import UserError
from transducer_gn.common.files import replace_when_done, write_text
from transducer_gn.common.processes import run_each
from transducer_gn.common.seeds import stable_seed
from transducer_gn.config import BatchConfig
from transducer_gn.data.batches import (
    FILTER_BANK_INPUTS,
    Batch,
    BatchDataset,
    Inputs,
    ResumableBatches,
    leave_stopping_to_training,
)
from transducer_gn.data.filtering import Usable
from transducer_gn.data.manifest_files import read_lines, write_json_lines
from transducer_gn.data.prepared import WithFolder
from transducer_gn.data.sampling import NumberedCuts, bucketing_sampler, duration_bins
from transducer_gn.data.tokenizer import Tokenizer

INDEX = "index.json"
SAMPLED_DURATIONS = 10000


def export_shar(manifest: Path, data_dir: Path, folder: Path, shard_size: int, tick_power: int, jobs: int) -> None:
    """Write the cuts of `manifest` with their features to `folder`, `shard_size` utterances per shard.

    The index is written last: a folder without one is not complete. Shards do not depend on `jobs`.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    lines = list(read_lines(manifest))
    tasks = [
        (lines[start : start + shard_size], data_dir.resolve(), folder, number, tick_power)
        for number, start in enumerate(range(0, len(lines), shard_size))
    ]
    durations = run_each(write_shard, tasks, jobs, f"Shar of {folder.name} (shards)")
    everything = [duration for shard in durations for duration in shard]
    sample = everything[:: ceil(len(everything) / SAMPLED_DURATIONS)]
    index = {"shards": [[len(shard), round(sum(shard), 3)] for shard in durations], "durations": sample}
    write_text(folder / INDEX, json.dumps(index) + "\n")


def write_shard(lines: Sequence[bytes], data_dir: Path, folder: Path, number: int, tick_power: int) -> list[float]:
    """Write one shard; return the durations of its utterances."""
    resolve = WithFolder(data_dir)
    cuts = []
    with replace_when_done(folder / f"features.{number:06d}.tar") as sibling:
        compression = dict(compression="lilcom", lilcom_tick_power=tick_power)
        with ArrayTarWriter(str(sibling), shard_size=None, **compression) as writer:
            for line in lines:
                cut = resolve(MonoCut.from_dict(json.loads(line)))
                features = to_shar_placeholder(cut.features, cut)
                writer.write(cut.id, cut.load_features(), manifest=features)
                cuts.append(fastcopy(cut, features=features, recording=None, start=0.0))
    write_json_lines(folder / f"cuts.{number:06d}.jsonl.gz", (cut.to_dict() for cut in cuts))
    return [cut.duration for cut in cuts]


def read_index(folder: Path) -> dict[str, Any]:
    """Return the index of a folder of shards."""
    path = folder / INDEX
    if not path.is_file():
        raise UserError(f"{folder} holds no complete Shar export (no {INDEX}); run prepare.sh with --shar")
    return json.loads(path.read_text())


@dataclass(frozen=True)
class LaneShards:
    """The cuts of one lane (one worker of one rank) in one pass over all shards: no two lanes read the same shard."""

    folder: Path
    shards: int
    lane: int
    lanes: int
    seed: int

    def __iter__(self) -> Iterator[Cut]:
        order = list(range(self.shards))
        random.Random(stable_seed("shards", self.seed)).shuffle(order)
        for number in order[self.lane :: self.lanes]:
            fields = {"cuts": f"cuts.{number:06d}.jsonl.gz", "features": f"features.{number:06d}.tar"}
            yield from CutSet.from_shar(fields={name: [str(self.folder / file)] for name, file in fields.items()})


@dataclass(frozen=True)
class Source:
    """What one rank reads from, and how.

    Attributes:
        folder: holds the shards of all ranks
        rank: this process's number
        world_size: number of processes that train together
    """

    folder: Path
    settings: BatchConfig
    rank: int
    world_size: int


@dataclass(frozen=True)
class LaneDataset(IterableDataset[Batch | None]):
    """What each worker runs: its own sampler over its own shards.

    Attributes:
        dataset: makes batches
        usable: says which utterances may be in them
        skip: batches of the epoch, over all workers of this rank, that were consumed before
        batches: of the whole epoch
    """

    source: Source
    dataset: BatchDataset
    usable: Usable
    epoch: int
    skip: int
    batches: int

    def __iter__(self) -> Iterator[Batch | None]:
        """Yield this worker's share of the epoch's batches; None for those that are skipped.

        The loader takes from one worker after another, so this worker's batch j is number j x workers + its own.
        """
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info is not None else (0, 1)
        rank, world_size = self.source.rank, self.source.world_size
        lane, lanes = rank * workers + worker, world_size * workers
        numbers = range(worker, self.batches, workers)
        for number, cuts in zip(numbers, self._cuts(lane, lanes), strict=False):
            if number < self.skip:
                yield None
            else:
                yield self.dataset[NumberedCuts(self.epoch, number * world_size + rank, cuts)]

    def _cuts(self, lane: int, lanes: int) -> Iterator[CutSet]:
        """Yield the cuts of a lane's batches: of a pass over all shards, then of another, as long as it takes."""
        folder, settings = self.source.folder, self.source.settings
        index = read_index(folder)
        bins = duration_bins(index["durations"], settings.num_buckets)
        for turn in count():
            seed = stable_seed("pass", settings.seed, self.epoch, turn)
            shards = LaneShards(folder, len(index["shards"]), lane, lanes, seed)
            limits = dict(max_duration=settings.max_duration, rank=0, world_size=1)
            sampler = bucketing_sampler(shards, bins, settings.shar_buffer_size, seed, **limits)
            found = False
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                for cuts in sampler.filter(self.usable):
                    found = True
                    yield cuts
            if not found:
                raise UserError(f"{folder}: one worker's utterances are all too short, too long or too dense")


class ShardedBatches(ResumableBatches):
    """Training batches from Shar, each worker of each rank reading shards of its own.

    An epoch is as many full batches as would hold the corpus once, the same number on every rank. A lane that has
    read all its shards before that begins another pass; utterances that no batch had room for wait for another
    epoch, in which the shards are dealt out anew. Unlike `Batches`, batches depend on the number of
    workers, since each worker batches what it reads. Resuming reads over what was consumed without decoding it.

    Args:
        folder: what `prepare.sh --shar` made, such as DATA/shar/train
        tokenizer: turns texts into tokens
        settings: how batches are made
        inputs: features and noise
        rank: this process's number
        world_size: number of processes that train together
    """

    def __init__(
        self,
        folder: Path,
        tokenizer: Tokenizer,
        settings: BatchConfig,
        *,
        inputs: Inputs = FILTER_BANK_INPUTS,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if settings.on_the_fly:
            raise UserError("on_the_fly needs audio, but Shar exports hold features; switch it off")
        shards = read_index(folder)["shards"]
        lanes = world_size * max(1, settings.num_workers)
        if len(shards) < lanes:
            raise UserError(
                f"{folder} has {len(shards)} shards, too few for {world_size} ranks of {settings.num_workers} workers; "
                "export again with a smaller --shard-size, or use fewer workers"
            )
        self._source = Source(folder, settings, rank, world_size)
        self._dataset = BatchDataset(tokenizer, settings, True, inputs)
        self._token_model = tokenizer.fingerprint
        self._usable = Usable(tokenizer, settings, inputs.framing)
        seconds = sum(duration for _, duration in shards)
        self.batches_per_epoch = ceil(seconds / (settings.max_duration * world_size))

    def count(self, epoch: int) -> int:
        """The same in every epoch."""
        return self.batches_per_epoch

    def starting_at(self, epoch: int, batch: int = 0) -> Iterable[Batch]:
        """Read over what was consumed without decoding it."""
        loader = DataLoader(
            LaneDataset(
                source=self._source,
                dataset=self._dataset,
                usable=self._usable,
                epoch=epoch,
                skip=batch,
                batches=self.batches_per_epoch,
            ),
            batch_size=None,
            num_workers=self._source.settings.num_workers,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator(),
            worker_init_fn=leave_stopping_to_training,
        )
        return (batch for batch in loader if batch is not None)

    def identity(self) -> dict[str, Any]:
        """Batches depend on the number of workers, too."""
        return asdict(self._source.settings) | {
            "shards": read_index(self._source.folder)["shards"],
            "world size": self._source.world_size,
            "token model": self._token_model,
        }
