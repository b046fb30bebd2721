#!/usr/bin/env python3
"""A rehearsal of LibriSpeech's size: how long training waits for data, and what data takes of its memory.

A manifest of 281,241 utterances at three speeds, with the published distribution of lengths, is made and indexed as
prepare.sh does; features are made up where they are read (benchmarks/librispeech_manifest.py). Measured are, each
beside its limit:

    index         what prepare.sh spends once on the index (no limit)
    start_up      from the imports to batches that are planned and counted: one rank alone
    first_batch   from the imports to the first batch, with all workers: one rank alone
    count         the number of an epoch's batches, of that the whole plan of it
    resume        from the imports to the batch after those that were done before: one rank alone, a new process
    memory        of a rank and its workers together, beside that of a process that has only imported everything
    lockstep      all ranks with all workers, each waiting for the others after every batch

and checked, over all ranks: that the batches of the epoch hold every utterance once, that all ranks have equally many,
and that those that were loaded are those that were planned.

With --shard-size the same is rehearsed with a Shar export of so many utterances per shard, in place of manifest and
index. Tar files are faked, so that what workers hold of their features is not in `memory`; it is computed:

    held          the most that the workers of a rank hold at a time of what they have read ahead, in bytes

Ratios: each measurement over its limit, below 1 if it was kept; and with --compare

    lhotse_over_plan    the same count by lhotse's sampler, run over cuts that have nothing but a duration, over `count`

A batch of 40 s as in global training makes the longest epochs: about 40,000 batches for each of 8 ranks. Seconds are
those of this machine, whatever else it does; the limits are meant for any.
"""

import argparse
import gc
import json
import logging
import multiprocessing
import tempfile
import time
import warnings
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import islice
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any
from unittest import mock

import librispeech_manifest
import numpy as np
import torch
from measure import in_own_process, write_result
from numpy.typing import NDArray

from transducer_gn.config import BatchConfig
from transducer_gn.data import epoch_plan
from transducer_gn.data.batches import Batches
from transducer_gn.data.prepared import PreparedData
from transducer_gn.data.sampling import EpochSampler
from transducer_gn.data.shar import INDEX, ShardedBatches
from transducer_gn.data.training_manifest import index_training_manifest

# Seconds, and for memory bytes.
LIMITS = {"first_batch": 60.0, "resume": 60.0, "memory": 1e9}
# Batches after which a rank alone has its memory measured: all workers have made some.
SETTLED = 40
# Of features in a tar file, per second of audio: 600 utterances of the mini corpus, exported.
BYTES_PER_SECOND = 14600
# Longest that ranks wait for each other, in seconds.
PATIENCE = 600.0


@dataclass(frozen=True)
class Rehearsal:
    """What is rehearsed.

    Attributes:
        cuts: utterances of the manifest, speeds included
        max_duration: seconds of a batch
        world_size: ranks
        workers: processes that load batches, of each rank
        resume_at: batches of an epoch that were done before a resumed run
        steps: batches that all ranks load in lockstep
        shard_size: utterances per shard of a Shar export; 0 for none, that is, manifest and index
    """

    cuts: int = librispeech_manifest.UTTERANCES * len(librispeech_manifest.SPEEDS)
    max_duration: float = 40.0
    world_size: int = 8
    workers: int = 4
    resume_at: int = 20000
    steps: int = 200
    shard_size: int = 0

    def batches(self, folder: Path, rank: int) -> Batches | ShardedBatches:
        """Return a rank's batches, as training makes them."""
        data = PreparedData(folder)
        settings = BatchConfig(max_duration=self.max_duration, num_workers=self.workers)
        tokenizer = data.tokenizer(librispeech_manifest.VOCAB_SIZE)
        if self.shard_size:
            return ShardedBatches(folder / "shar" / "train", tokenizer, settings, rank=rank, world_size=self.world_size)
        utterances = data.training_utterances()
        return Batches(utterances, tokenizer, settings, training=True, rank=rank, world_size=self.world_size)


def planned(batches: Batches | ShardedBatches, count: int) -> tuple[NDArray[np.int64], list[list[int]]]:
    """Return all of a rank's epoch, and the utterances of its first `count` batches by their place in the manifest."""
    if isinstance(batches, ShardedBatches):
        lanes = batches.lanes(0)
        # The loader takes from one worker after another.
        first = [lanes[number % len(lanes)].plan.batch(number // len(lanes)) for number in range(count)]
        everything = np.concatenate([lane.plan.positions for lane in lanes])
        return everything, [[position for position, _ in batch] for batch in first]
    plan, cut = batches.plan(0), batches.utterances.cut
    names = [[cut(position).id for position, _ in plan.batch(number)] for number in range(count)]
    return plan.positions, [[librispeech_manifest.number_of(name) for name in batch] for batch in names]


def held_bytes(batches: Batches | ShardedBatches) -> float:
    """Return the most that the workers of a rank hold of features at a time; 0 without Shar."""
    if not isinstance(batches, ShardedBatches):
        return 0.0
    most = 0.0
    for lane in batches.lanes(0):
        seconds = batches.durations
        read = np.cumsum(seconds[lane.stream])[lane.read - 1]
        used = np.cumsum(seconds[lane.plan.positions])[lane.plan.borders[1:] - 1]
        most += float((read - np.concatenate([[0.0], used[:-1]])).max()) * BYTES_PER_SECOND
    return most


def make_index(rehearsal: Rehearsal, folder: Path) -> float:
    """Index the manifest as prepare.sh does, or count the tokens of a Shar export; return seconds."""
    data, start = PreparedData(folder), time.perf_counter()
    if rehearsal.shard_size:
        rehearsal.batches(folder, rank=0)
    else:
        index_training_manifest(data, [data.tokenizer(librispeech_manifest.VOCAB_SIZE)])
    return time.perf_counter() - start


def proportional_bytes(process: int) -> int:
    """Return the memory of a process, what it shares with others counted in equal parts."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def run_alone(rehearsal: Rehearsal, folder: Path) -> dict[str, float]:
    """Start a rank and load its first batches; return what that takes. Best in a process of its own."""
    gc.collect()
    before, start = proportional_bytes(multiprocessing.current_process().pid or 0), time.perf_counter()
    batches = rehearsal.batches(folder, rank=0)
    planned = time.perf_counter()
    number = batches.count(0)
    counted = time.perf_counter()
    loaded = iter(batches.starting_at(0))
    next(loaded)
    first = time.perf_counter()
    for _ in islice(loaded, SETTLED):
        pass
    processes = [multiprocessing.current_process(), *multiprocessing.active_children()]
    memory = sum(proportional_bytes(process.pid or 0) for process in processes) - before
    seconds = {"start_up": counted - start, "first_batch": first - start, "count": counted - planned}
    return seconds | {"memory": memory, "batches": number, "held": held_bytes(batches)}


def run_resumed(rehearsal: Rehearsal, folder: Path) -> dict[str, float]:
    """Start a rank where another stopped; return the seconds to its first batch. Best in a process of its own."""
    start = time.perf_counter()
    batches = rehearsal.batches(folder, rank=0)
    resumed_at = min(rehearsal.resume_at, batches.count(0) - 1)
    next(iter(batches.starting_at(0, resumed_at)))
    return {"resume": time.perf_counter() - start, "resumed_at": resumed_at}


def run_rank(rehearsal: Rehearsal, folder: Path, rank: int, together: Barrier, results: Path) -> None:
    """Load batches in step with the other ranks; write what was loaded and planned."""
    torch.set_num_threads(1)
    batches = rehearsal.batches(folder, rank)
    together.wait(PATIENCE)
    start, names = time.perf_counter(), []
    for batch in islice(batches.starting_at(0), rehearsal.steps):
        names.append(batch.ids)
        together.wait(PATIENCE)
    seconds = time.perf_counter() - start
    everything, numbers = planned(batches, len(names))
    loaded = [sorted(map(librispeech_manifest.number_of, batch)) for batch in names]
    np.save(results / f"{rank}.npy", everything)
    found = {"seconds": seconds, "batches": batches.count(0), "kept": batches.report.kept, "names": names}
    (results / f"{rank}.json").write_text(json.dumps(found | {"as_planned": loaded == list(map(sorted, numbers))}))


def run_in_lockstep(rehearsal: Rehearsal, folder: Path) -> dict[str, float]:
    """Run all ranks at once; return seconds and check what they loaded."""
    # Forks share what is imported, so that 8 ranks of 4 workers fit into a small machine.
    context = multiprocessing.get_context("fork")
    together = context.Barrier(rehearsal.world_size)
    with tempfile.TemporaryDirectory() as results:
        places = (rehearsal, folder), (together, Path(results))
        ranks = [
            context.Process(target=run_rank, args=(*places[0], rank, *places[1]))
            for rank in range(rehearsal.world_size)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        found = [json.loads((Path(results) / f"{rank}.json").read_text()) for rank in range(rehearsal.world_size)]
        everything = np.concatenate([np.load(Path(results) / f"{rank}.npy") for rank in range(rehearsal.world_size)])
    names = [name for rank in found for batch in rank["names"] for name in batch]
    checks = {
        "every utterance in one batch of the epoch": len(np.unique(everything)) == len(everything) == found[0]["kept"],
        "equally many batches": len({rank["batches"] for rank in found}) == 1,
        "no utterance loaded twice": len(names) == len(set(names)) > 0,
        "loaded as planned": all(rank["as_planned"] for rank in found),
    }
    if broken := [name for name, kept in checks.items() if not kept]:
        raise AssertionError(f"not so: {', '.join(broken)}")
    return {"lockstep": max(rank["seconds"] for rank in found), "utterances_loaded": len(names)}


def count_by_lhotse(rehearsal: Rehearsal, folder: Path) -> float:
    """Plan the epoch with lhotse's sampler; return seconds."""
    durations = rehearsal.batches(folder, rank=0).report.durations
    settings = BatchConfig(max_duration=rehearsal.max_duration)
    with mock.patch.object(epoch_plan, "SMALL_CORPUS", len(durations)):
        start = time.perf_counter()
        EpochSampler(durations, settings, True, 0, rehearsal.world_size).plan(0)
        return time.perf_counter() - start


def report(rehearsal: Rehearsal, found: dict[str, float]) -> dict[str, object]:
    """Print a table; return the JSON."""
    for name in ("index", "start_up", "first_batch", "count", "resume", "lockstep"):
        limit = f"   (limit {LIMITS[name]:.0f} s)" if name in LIMITS else ""
        print(f"{name:12s} {found[name]:8.1f} s{limit}")
    print(f"{'memory':12s} {found['memory'] / 1e6:8.0f} MB   (limit {LIMITS['memory'] / 1e6:.0f} MB)")
    if rehearsal.shard_size:
        print(f"{'held':12s} {found['held'] / 1e6:8.0f} MB")
    print(f"{found['batches']} batches for each of {rehearsal.world_size} ranks; resumed at {found['resumed_at']}")
    print(f"lockstep: {rehearsal.steps} batches of each, {found['utterances_loaded']} utterances, none twice")
    ratios = {f"{name}_over_limit": found[name] / limit for name, limit in LIMITS.items()}
    if "lhotse" in found:
        ratios["lhotse_over_plan"] = found["lhotse"] / found["count"]
    for name, value in ratios.items():
        print(f"{name:24s} {value:8.3f}")
    return {"ratios": ratios, "measured": found, "limits": LIMITS, "rehearsal": asdict(rehearsal)}


def rehearse(rehearsal: Rehearsal, folder: Path, variants: tuple[str, ...], compare: bool) -> dict[str, object]:
    """Make the manifest where there is none, and measure everything."""
    if not (folder / "cuts_train.jsonl.gz").is_file():
        start = time.perf_counter()
        librispeech_manifest.make_prepared_folder(folder, rehearsal.cuts)
        print(f"made a manifest of {rehearsal.cuts} utterances in {time.perf_counter() - start:.0f} s", flush=True)
    if rehearsal.shard_size and not (folder / "shar" / "train" / INDEX).is_file():
        librispeech_manifest.make_shar_export(folder, rehearsal.shard_size)
    found: dict[str, float] = {"index": make_index(rehearsal, folder)}
    for variant in ("alone", "resumed"):
        found |= in_own_process(__file__, [*variants, "--folder", str(folder), "--variant", variant], threads=1)
    found |= run_in_lockstep(rehearsal, folder)
    if compare:
        found["lhotse"] = count_by_lhotse(rehearsal, folder)
    return report(rehearsal, found)


def main() -> None:
    """Measure, print, and write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="write ratios and measurements to this file")
    for name, value in asdict(Rehearsal()).items():
        parser.add_argument(flag(name), type=type(value), default=value, help="see Rehearsal")
    parser.add_argument("--folder", type=Path, help="keep manifest and index here, or use those that are here")
    parser.add_argument("--compare", action="store_true", help="count with lhotse's sampler, too: a minute or more")
    parser.add_argument("--variant", choices=("alone", "resumed"), help=argparse.SUPPRESS)
    arguments = vars(parser.parse_args())
    # More processes than cores are meant.
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    rehearsal = Rehearsal(**{name: arguments[name] for name in asdict(Rehearsal())})
    with librispeech_manifest.faked_shards() if rehearsal.shard_size else nullcontext():
        run(rehearsal, arguments)


def run(rehearsal: Rehearsal, arguments: dict[str, Any]) -> None:
    """Measure one variant and print it, or everything."""
    if arguments["variant"]:
        measure = run_alone if arguments["variant"] == "alone" else run_resumed
        print(json.dumps(measure(rehearsal, arguments["folder"])))
        return
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    variants = tuple(word for name, value in asdict(rehearsal).items() for word in (flag(name), str(value)))
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments["folder"] or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        write_result(arguments["json"], rehearse(rehearsal, folder, variants, arguments["compare"]))


def flag(name: str) -> str:
    """Return the flag of a setting."""
    return f"--{name.replace('_', '-')}"


if __name__ == "__main__":
    main()
