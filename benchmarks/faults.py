#!/usr/bin/env python3
"""Nothing lost: trainings that are disturbed at random moments, against one that nothing happens to.

  faults.py --faults 200 --seed 1 --json result.json

Two ranks train a tiny model on made-up features, through the regulariser's ramp, alpha's slope and look-ahead groups.
Again and again something goes wrong (fault_injection.py has the list), and the same command is called again, until the
training is done; then the next one begins, until there were so many faults. Each must end with the parameters, running
average, metrics and best epoch of the undisturbed one, bit for bit. Only a superuser can do all of this to a disk.
The result is written after every training; with a file of an earlier call of the same seed, its faults count.

  lost        trainings that ended otherwise; must be 0
  faults      how many there were, and of which kinds
"""

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from fault_injection import FAULTS, Life, kill_all, small_disk, start_life, until
from measure import write_result

from transducer_gn.common.processes import Progress

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "tests"))

from toy_data import make_toy_data, toy_settings  # noqa: E402

SETTINGS: dict[str, str | float | int] = {
    "training.epochs": 4,
    "training.save_interval": 2,
    "training.log_interval": 1,
    "training.memory_scan": "false",
    "normalisation.alpha": 0.3,
    "normalisation.regulariser": 0.05,
    "normalisation.regulariser_ramp": 0.5,
    "normalisation.alpha_delay": 0.5,
    "normalisation.alpha_per_epoch": 0.5,
    "competitors.lookahead": 3,
    "data.batches.num_workers": 1,
    "data.batches.max_duration": 3,
}
LAST = f"epoch-{SETTINGS['training.epochs']}.pt"
# A fault comes while processes start, within so many seconds, or after so many updates of a life.
START_SECONDS, UPDATES = 8.0, 6


def updates_of(folder: Path) -> int:
    """How many updates the metrics of a run tell of; that they are written tells that a life has come so far."""
    path = folder / "metrics.jsonl"
    return path.read_bytes().count(b'"kind": "train"') if path.is_file() else 0


def wait_for_a_moment(life: Life, rng: random.Random) -> None:
    """Some time during start-up, or some updates later."""
    if rng.random() < 0.25:
        until(lambda: False, life, rng.uniform(0, START_SECONDS))
        return
    until(lambda: len(life.ranks()) == 2, life)
    before = updates_of(life.folder)
    wanted = rng.randint(1, UPDATES)
    # What a killed life wrote after its last checkpoint is dropped first: the count may fall before it rises.
    lowest = [before]

    def has_advanced() -> bool:
        lowest[0] = min(lowest[0], updates_of(life.folder))
        return updates_of(life.folder) >= lowest[0] + wanted

    until(has_advanced, life)
    time.sleep(rng.uniform(0, 0.2))


def is_finished(folder: Path) -> bool:
    """Whether the last epoch is done and noted."""
    best = folder / "best.json"
    return best.is_file() and json.loads(best.read_text())["last_epoch"] == SETTINGS["training.epochs"]


def state_of(folder: Path) -> dict[str, Any]:
    """Everything that two runs must have in common, without times and paths."""
    checkpoint = torch.load(folder / LAST, weights_only=True)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {
        "model": checkpoint["model"],
        "average": checkpoint["average"]["parameters"],
        "metrics": [{k: v for k, v in line.items() if not k.startswith("seconds")} for line in lines],
        "best": json.loads((folder / "best.json").read_text()),
    }


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Names of what is not the same, bit for bit."""
    tensors = [f"{kind}.{name}" for kind in ("model", "average") for name, value in one[kind].items()
               if not torch.equal(value, other[kind][name])]  # fmt: skip
    return tensors + [kind for kind in ("metrics", "best") if one[kind] != other[kind]]


@dataclass
class Tally:
    """What was done so far, and what came of it: all that a later call must know to go on.

    Attributes:
        seed: of moments and kinds
        trainings: that were disturbed and came to their end
        lives: calls of train.py
        updates: of one training
        counts: faults done, by kind
        kinds: what comes next, the last first
        lost: trainings that ended otherwise than the undisturbed one, and in what
    """

    seed: int
    trainings: int = 0
    lives: int = 0
    updates: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    kinds: list[str] = field(default_factory=list)
    lost: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As the result has it."""
        return {
            "ratios": {"lost": len(self.lost), "faults": self.counts.total()},
            "seed": self.seed,
            "trainings": self.trainings,
            "updates of a training": self.updates,
            "calls of train.py": self.lives,
            "by kind": dict(sorted(self.counts.items())),
            "next kinds": self.kinds,
            "different": self.lost,
        }

    @staticmethod
    def from_json(result: dict[str, Any]) -> "Tally":
        """From `to_json`."""
        return Tally(
            seed=result["seed"],
            trainings=result["trainings"],
            lives=result["calls of train.py"],
            updates=result["updates of a training"],
            counts=Counter(result["by kind"]),
            kinds=result["next kinds"],
            lost=result["different"],
        )


class Disturber:
    """Draws faults, does them to lives, and counts.

    Args:
        tally: what was done before, which grows
        faults: how many there are to be in all
        work: folder for logs
        arguments: of train.py
    """

    def __init__(self, tally: Tally, faults: int, work: Path, arguments: list[str]) -> None:
        self._tally, self._wanted, self._work, self._arguments = tally, faults, work, arguments
        self._progress = Progress("faults", faults - tally.counts.total())
        self._rng = random.Random()

    @property
    def is_done(self) -> bool:
        """Whether there were enough faults."""
        return self._tally.counts.total() >= self._wanted

    def run(self, folder: Path) -> None:
        """One training from its beginning to its end, disturbed as long as faults are left."""
        # What is drawn in a training depends on no earlier one, so that a later call draws the same.
        self._rng.seed(f"{self._tally.seed} {self._tally.trainings}")
        while not is_finished(folder):
            self._tally.lives += 1
            life = start_life(self._arguments, folder, self._work / "life.log")
            try:
                self._live(life)
            finally:
                kill_all(life, self._rng)

    def _live(self, life: Life) -> None:
        """One call of train.py from its beginning to its end."""
        was_disturbed = False
        while not life.is_over() and not self.is_done:
            wait_for_a_moment(life, self._rng)
            was_disturbed |= not life.is_over() and self._disturb(life)
        if life.wait() != 0 and not was_disturbed:
            raise RuntimeError(f"undisturbed, training failed:\n{life.said()[-3000:]}")

    def _disturb(self, life: Life) -> bool:
        """Do one fault to a life, if it can be done; each kind once, in another order, before any comes again."""
        kinds = self._tally.kinds
        if not kinds:
            kinds += self._rng.sample(sorted(FAULTS), len(FAULTS))
        kind = kinds.pop()
        is_done = FAULTS[kind](life, self._rng)
        if is_done:
            self._tally.counts[kind] += 1
            self._progress.step()
        else:
            kinds.insert(0, kind)
        return is_done


def disturbed_runs(faults: int, tally: Tally, work: Path, note: Callable[[Tally], None]) -> None:
    """As many trainings as the faults take, each compared with the undisturbed one.

    Args:
        tally: what was done before, which grows
        work: folder for everything
        note: is told of every training
    """
    data = make_toy_data(work / "data", train=48, dev=8, seed=tally.seed)
    arguments = toy_settings(data, **SETTINGS)
    calm = work / "undisturbed"
    life = start_life(arguments, calm, work / "undisturbed.log")
    if life.wait() != 0:
        raise RuntimeError(life.said()[-3000:])
    expected, disturber = state_of(calm), Disturber(tally, faults, work, arguments)
    tally.updates = sum(line["kind"] == "train" for line in expected["metrics"])
    with small_disk(work / "disk"):
        while not disturber.is_done:
            folder = work / "disk" / f"run-{tally.trainings}"
            disturber.run(folder)
            if different := differences(expected, state_of(folder)):
                tally.lost.append({"run": tally.trainings, "different": different[:10]})
            tally.trainings += 1
            note(tally)
            shutil.rmtree(folder)


def known(path: Path | None, seed: int) -> Tally:
    """What an earlier call with the same seed has done."""
    if path is not None and path.is_file() and (result := json.loads(path.read_text()))["seed"] == seed:
        return Tally.from_json(result)
    return Tally(seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=200, help="how many (200)")
    parser.add_argument("--seed", type=int, default=0, help="of moments and kinds (0)")
    parser.add_argument("--json", type=Path, help="file to write the result to, and to go on from")
    arguments = parser.parse_args()
    # What is asked to stop cleans up: processes, the mounted disk, files.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    tally = known(arguments.json, arguments.seed)
    with tempfile.TemporaryDirectory() as work:
        disturbed_runs(arguments.faults, tally, Path(work), lambda tally: write_result(arguments.json, tally.to_json()))
    result = tally.to_json()
    for kind, number in result["by kind"].items():
        print(f"{kind:40} {number:5}")
    for name, value in result["ratios"].items():
        print(f"{name:40} {value:5}")
    sys.exit(1 if result["different"] else 0)


if __name__ == "__main__":
    main()
