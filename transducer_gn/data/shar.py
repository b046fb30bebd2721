"""Training from Shar: features and manifests in tar files that each worker of each rank reads from start to end.

For corpora on network disks or object stores, where reading many small pieces at random is slow.
"""

import hashlib
import json
import logging
import tarfile
import zlib
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from lhotse import CutSet
from lhotse.cut import Cut, MonoCut
from lhotse.shar.utils import to_shar_placeholder
from lhotse.shar.writers import ArrayTarWriter
from lhotse.utils import fastcopy
from numpy.typing import NDArray
from torch.utils.data import IterableDataset, get_worker_info

from transducer_gn.common.errors import UserError
from transducer_gn.common.files import remove_folder, replace_when_done, write_text
from transducer_gn.common.json_files import read_json
from transducer_gn.common.processes import run_each
from transducer_gn.common.seeds import stable_seed
from transducer_gn.common.typed import typed
from transducer_gn.config import BatchConfig
from transducer_gn.data.batches import (
    FILTER_BANK_INPUTS,
    Batch,
    BatchDataset,
    Inputs,
    NumberedCuts,
    ResumableBatches,
    settings_identity,
)
from transducer_gn.data.cuts import stored_features, text_of
from transducer_gn.data.epoch_plan import Packing, Positions
from transducer_gn.data.filtering import Usable, usable_positions
from transducer_gn.data.index import DURATIONS, read_durations, token_counts, write_array
from transducer_gn.data.loading import load
from transducer_gn.data.manifest_files import read_json_lines, read_lines, write_json_lines
from transducer_gn.data.prepared import WithFolder
from transducer_gn.data.sampling import duration_bins
from transducer_gn.data.shar_plan import Lane, deal, plan_lanes
from transducer_gn.data.tokenizer import Tokenizer

INDEX = "index.json"
FORMAT = 2
# What lhotse and the libraries below it raise for files that are missing, cut short or mixed up.
DAMAGE = (OSError, EOFError, ValueError, AssertionError, RuntimeError, tarfile.TarError, zlib.error)


def export_shar(manifest: Path, data_dir: Path, folder: Path, shard_size: int, tick_power: int, jobs: int) -> None:
    """Write the cuts of `manifest` with their features to `folder`, `shard_size` utterances per shard.

    The index is written last: a folder without one is not complete. Shards do not depend on `jobs`.
    """
    remove_folder(folder)
    folder.mkdir(parents=True)
    lines = list(read_lines(manifest))
    tasks = [
        (lines[start : start + shard_size], data_dir.resolve(), folder, number, tick_power)
        for number, start in enumerate(range(0, len(lines), shard_size))
    ]
    durations = run_each(write_shard, tasks, jobs, f"Shar of {folder.name} (shards)")
    write_array(folder / DURATIONS, [duration for shard in durations for duration in shard], np.float64)
    index = {"format": FORMAT, "shards": [len(shard) for shard in durations], "fingerprint": fingerprint(lines)}
    write_text(folder / INDEX, json.dumps(index) + "\n")


def fingerprint(lines: Sequence[bytes]) -> str:
    """Return a checksum of a manifest's lines."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line + b"\n")
    return digest.hexdigest()[:16]


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
                writer.write(cut.id, stored_features(cut), manifest=features)
                cuts.append(fastcopy(cut, features=features, recording=None, start=0.0))
    write_json_lines(folder / f"cuts.{number:06d}.jsonl.gz", (cut.to_dict() for cut in cuts))
    return [cut.duration for cut in cuts]


class SharExport:
    """A folder of shards and its index.

    Attributes:
        folder: holds the shards of all ranks
        durations: [N] seconds of all utterances
        shards: [S + 1] shard s holds the utterances from shards[s] to shards[s + 1]
        fingerprint: identifies the utterances, in order
    """

    def __init__(self, folder: Path) -> None:
        path = folder / INDEX
        if not path.is_file():
            raise UserError(f"{folder} holds no complete Shar export (no {INDEX}); run prepare.sh with --shar")
        try:
            index = read_json(path, dict[str, Any])
            if index.get("format") != FORMAT:
                raise UserError(f"{folder} was exported by an older version; run prepare.sh with --shar again")
            sizes = typed(list[int], index["shards"], "shards")
            self.fingerprint: str = typed(str, index["fingerprint"], "fingerprint")
            self.durations = read_durations(folder / DURATIONS)
            if min(sizes, default=0) < 0 or sum(sizes) != len(self.durations):
                raise ValueError("shards and durations do not fit")
        except (ValueError, KeyError) as error:
            raise UserError(f"{path} is damaged ({error}); run prepare.sh with --shar again") from error
        self.folder = folder
        self.shards: Positions = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])

    def __len__(self) -> int:
        return len(self.shards) - 1

    def tokens(self, tokenizer: Tokenizer) -> NDArray[np.int32]:
        """Return [N] the number of tokens of each utterance."""

        def texts() -> Iterator[str]:
            for number in range(len(self)):
                path = self.folder / f"cuts.{number:06d}.jsonl.gz"
                for line, cut in enumerate(read_json_lines(path), start=1):
                    try:
                        yield text_of(cut)
                    except ValueError as error:
                        raise UserError(
                            f"{path}, line {line}: {error}; copy it again, or run prepare.sh with --shar again"
                        ) from error

        return token_counts(self.folder, tokenizer, texts, len(self.durations))

    def read(self, stream: Positions, wanted: Container[int]) -> Iterator[tuple[int, int, Cut]]:
        """Read the wanted utterances of a stream; yield the place of each in it, the utterance, and its cut.

        Shards without any of them are not opened. A shard that lacks one of them is a `UserError`.
        """
        numbers = np.searchsorted(self.shards, stream, side="right") - 1
        for number, group in groupby(range(len(stream)), key=lambda place: int(numbers[place])):
            places = {int(stream[place]): place for place in group if int(stream[place]) in wanted}
            for position, cut in enumerate(self._whole(number) if places else (), start=int(self.shards[number])):
                if position in places:
                    yield places.pop(position), position, cut
                if not places:
                    break

    def _whole(self, number: int) -> Iterator[Cut]:
        """Yield a shard's cuts; UserError if there are not as many as there should be."""
        count = int(self.shards[number + 1] - self.shards[number])
        found = 0
        reason: Exception | str = "it ends too early"
        try:
            for cut in self._shard(number):
                yield cut
                found += 1
        except DAMAGE as error:
            reason = error
        if found < count:
            raise UserError(
                f"shard {number} of {self.folder} (cuts.{number:06d}, features.{number:06d}) cannot be read beyond "
                f"{found} of its {count} utterances ({reason}); copy it again, or run prepare.sh with --shar again"
            )

    def _shard(self, number: int) -> Iterable[Cut]:
        fields = {"cuts": f"cuts.{number:06d}.jsonl.gz", "features": f"features.{number:06d}.tar"}
        return CutSet.from_shar(fields={name: [str(self.folder / file)] for name, file in fields.items()})


def read_lane(export: SharExport, lane: Lane, wanted: Sequence[int]) -> Iterator[list[Cut]]:
    """Yield the cuts of those batches of a lane that are wanted, in ascending order; what others need is not read."""
    uses = Counter(position for number in wanted for position, _ in lane.plan.batch(number))
    held: dict[int, Cut] = {}
    arriving = export.read(lane.stream, frozenset(uses))
    coming = next(arriving, None)
    for number in wanted:
        while coming is not None and coming[0] < lane.read[number]:
            held[coming[1]] = coming[2]
            coming = next(arriving, None)
        cuts = []
        for position, copy in lane.plan.batch(number):
            uses[position] -= 1
            cut = held[position] if uses[position] else held.pop(position)
            cuts.append(cut.with_id(cut.id + copy) if copy else cut)
        yield cuts


@dataclass(frozen=True)
class LaneDataset(IterableDataset[Batch | None]):
    """What each worker runs: it reads its own lane.

    Attributes:
        export: the shards
        dataset: makes batches
        lanes: those of this rank, one for each worker
        epoch: the epoch
        skip: batches of the epoch, over all workers of this rank, that were consumed before
        rank: this process's number
        world_size: number of processes that train together
    """

    export: SharExport
    dataset: BatchDataset
    lanes: Sequence[Lane]
    epoch: int
    skip: int
    rank: int
    world_size: int

    def __iter__(self) -> Iterator[Batch | None]:
        """Yield this worker's share of the batches that are left.

        The loader takes from one worker after another, so this worker's batch j is number j x workers + its own. Those
        whose batch of the first round was consumed yield None for it.
        """
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info is not None else (0, 1)
        first, consumed = divmod(self.skip, workers)
        if worker < consumed:
            yield None
            first += 1
        yield from self.batches(worker, range(first, len(self.lanes[worker].plan)))

    def batches(self, worker: int, wanted: Sequence[int]) -> Iterator[Batch]:
        """Yield some batches of a worker's lane."""
        for number, cuts in zip(wanted, read_lane(self.export, self.lanes[worker], wanted), strict=True):
            place = (number * len(self.lanes) + worker) * self.world_size + self.rank
            yield self.dataset[NumberedCuts(self.epoch, place, cuts)]


class ShardedBatches(ResumableBatches):
    """Training batches from Shar, each worker of each rank reading a stretch of its own of all shards.

    An epoch is the whole corpus: every usable utterance comes once, and every rank has equally many batches. Stretches
    are dealt out anew in each epoch. Unlike `Batches`, batches depend on the number of workers, since each worker
    batches what it reads. Resuming opens only the shards of what is left.

    Args:
        folder: what `prepare.sh --shar` made, such as DATA/shar/train
        tokenizer: turns texts into tokens
        settings: how batches are made
        inputs: features and noise
        rank: this process's number
        world_size: number of processes that train together

    Attributes:
        durations: [N] seconds of all utterances of the export
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
        if settings.on_the_fly or inputs.audio:
            name = "on_the_fly" if settings.on_the_fly else "model.front_end.freeze: false"
            raise UserError(f"{name} needs audio, but Shar exports hold features; switch it off")
        export = SharExport(folder)
        self._workers = max(1, settings.num_workers)
        if len(export) < world_size * self._workers:
            raise UserError(
                f"{folder} has {len(export)} shards, too few for {world_size} ranks of {settings.num_workers} workers; "
                "export again with a smaller --shard-size, or use fewer workers"
            )
        self._export, self._settings, self.durations = export, settings, export.durations
        self._rank, self._world_size = rank, world_size
        self._dataset = BatchDataset(tokenizer, settings, True, inputs)
        self._token_model = tokenizer.fingerprint
        self._usable, self.report = usable_positions(export, Usable(tokenizer, settings, inputs.framing))
        logging.info("Training batches: %s", self.report)
        if self.report.kept < world_size * self._workers:
            raise UserError(f"{folder} has too little for {world_size} ranks of {self._workers} workers: {self.report}")
        bins = duration_bins(self.report.durations.tolist(), settings.num_buckets)
        self._packing = Packing(bins, settings.max_duration)
        self._last: tuple[int, list[Lane]] | None = None

    def count(self, epoch: int) -> int:
        """Look it up in the plan."""
        return sum(len(lane.plan) for lane in self.lanes(epoch))

    def largest(self, epoch: int) -> list[Batch]:
        """Return those with most audio, padding included, and with the longest utterance; opens their shards alone."""
        durations, found = self.durations, {}
        for worker, lane in enumerate(self.lanes(epoch)):
            for number in lane.plan.largest(durations):
                seconds = durations[[position for position, _ in lane.plan.batch(number)]]
                found[worker, number] = (len(seconds) * seconds.max(), seconds.max())
        chosen = dict.fromkeys(max(found, key=lambda place: found[place][measure]) for measure in (0, 1))
        return [next(self._from(epoch, 0).batches(worker, [number])) for worker, number in chosen]

    def starting_at(self, epoch: int, batch: int = 0) -> Iterable[Batch]:
        """Open the shards of what is left."""
        loaded = load(self._from(epoch, batch), self._settings.num_workers)
        return (batch for batch in loaded if batch is not None)

    def _from(self, epoch: int, skip: int) -> LaneDataset:
        lanes = self.lanes(epoch)
        return LaneDataset(self._export, self._dataset, lanes, epoch, skip, self._rank, self._world_size)

    def identity(self) -> dict[str, Any]:
        """Batches depend on the number of workers, too."""
        utterances = {"shards": self._export.shards.tolist(), "utterances": self.report.fingerprint}
        return (
            settings_identity(self._settings)
            | utterances
            | {"world size": self._world_size, "token model": self._token_model}
        )

    def lanes(self, epoch: int) -> list[Lane]:
        """Return what this rank's workers do in an epoch."""
        if self._last is None or self._last[0] != epoch:
            seed, durations = stable_seed("pass", self._settings.seed, epoch), self.durations
            streams = deal(self._usable, self._export.shards, durations, self._world_size * self._workers, seed)
            lanes = plan_lanes(streams, durations, self._packing, self._settings.shar_buffer_size, seed)
            self._last = (epoch, lanes[self._rank * self._workers :][: self._workers])
        return self._last[1]
