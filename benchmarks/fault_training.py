"""A training of two ranks that is disturbed at random moments, against one that nothing happens to."""

import json
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fault_content import checkpoint_content, differing, metrics_content, without_seconds
from fault_disks import small_disk
from fault_injection import FAULTS
from fault_lives import Life, kill_all, start_life, until
from fault_tally import Tally
from toy_data import make_toy_data, toy_settings

from transducer_gn.common.processes import Progress

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
    """Everything that two runs must have in common: all of all checkpoints, the metrics, the best epoch."""
    metrics, best = ((folder / name).read_text() for name in ("metrics.jsonl", "best.json"))
    state: dict[str, Any] = {"metrics": metrics_content(metrics), "best": without_seconds(best)}
    for path in folder.glob("*.pt"):
        state[path.name] = checkpoint_content(path)
    return state


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
        self._progress = Progress("faults", faults - tally.faults)
        self._rng = random.Random()

    @property
    def is_done(self) -> bool:
        """Whether there were enough faults."""
        return self._tally.faults >= self._wanted

    def run(self, folder: Path) -> None:
        """One training from its beginning to its end, disturbed as long as faults are left.

        The last call is one that nothing happens to: a fault may have come when all was written.
        """
        # What is drawn in a training depends on no earlier one, so that a later call draws the same.
        self._rng.seed(f"{self._tally.seed} {self._tally.runs}")
        is_calm = False
        while not is_calm:
            self._tally.calls += 1
            has_to_train = not is_finished(folder)
            life = start_life(self._arguments, folder, self._work / "life.log")
            try:
                is_calm = self._live(life, has_to_train)
            finally:
                kill_all(life, self._rng)

    def _live(self, life: Life, has_to_train: bool) -> bool:
        """One call of train.py from its beginning to its end; gives whether nothing happened to it."""
        was_disturbed = False
        while has_to_train and not life.is_over() and not self.is_done:
            wait_for_a_moment(life, self._rng)
            was_disturbed |= not life.is_over() and self._disturb(life)
        if life.wait() != 0 and not was_disturbed:
            raise RuntimeError(f"undisturbed, training failed:\n{life.said()[-3000:]}")
        return not was_disturbed

    def _disturb(self, life: Life) -> bool:
        """Do one fault to a life, if it can be done; each kind once, in another order, before any comes again."""
        kinds = self._tally.next_kinds
        if not kinds:
            kinds += self._rng.sample(sorted(FAULTS), len(FAULTS))
        kind = kinds.pop()
        life.least_hit = self._tally.least_hit(life.kinds)
        is_done = FAULTS[kind](life, self._rng)
        if is_done:
            self._tally.count(kind, life)
            self._progress.step()
        else:
            kinds.insert(0, kind)
        return is_done


def disturbed_trainings(faults: int, tally: Tally, work: Path, note: Callable[[Tally], None]) -> None:
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
    tally.size = updates_of(calm)
    with small_disk(work / "disk"):
        while not disturber.is_done:
            folder = work / "disk" / f"run-{tally.runs}"
            disturber.run(folder)
            tally.compare(differing(expected, state_of(folder)))
            note(tally)
            shutil.rmtree(folder)
