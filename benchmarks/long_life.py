#!/usr/bin/env python3
"""Long life: does a process that trains, or recognises streams, grow while it lives?

  long_life.py --updates 20000 --minutes 120 --json result.json
  long_life.py --updates 0 --minutes 120 --json result.json       the streams alone; what the file has of training stays

  training    a tiny model on made-up features, with a process that loads batches, validations, checkpoints of which
              old ones are removed, through alpha's slope with competitors; --updates of it. As a clock that is sped up:
              each update is as many steps as a large one, only smaller
  streams     --minutes of audio through the server's engine, its clock simulated: audio comes as fast as it is
              recognised. One stream lives from the beginning to the end, others come and go beside it; readings are
              watched in every other one, and every third leaves without a word

At intervals the process is looked at: resident memory, open files, threads, processes that it has started. Growth is
the largest of the last quarter of looks against that of the second quarter; the first is for warming up.

  PART_memory      resident memory, a ratio
  PART_files, PART_threads, PART_processes     differences
  PART_held        bytes of tensors that all streams hold, a difference
"""

import argparse
import gc
import json
import logging
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "tests"))

from fault_lives import descendants  # noqa: E402
from measure import write_result  # noqa: E402
from small_systems import write_checkpoint  # noqa: E402
from toy_data import make_toy_data, toy_settings  # noqa: E402

from transducer_gn.common.memory import held_bytes  # noqa: E402
from transducer_gn.common.units import SAMPLING_RATE as RATE  # noqa: E402
from transducer_gn.config import RecognitionConfig, config_parser, read_config  # noqa: E402
from transducer_gn.recognition.system import load  # noqa: E402
from transducer_gn.serving.engine import Engine  # noqa: E402
from transducer_gn.serving.frames import Frame, Kind  # noqa: E402
from transducer_gn.training.distributed import World  # noqa: E402
from transducer_gn.training.learner import Update  # noqa: E402
from transducer_gn.training.trainer import Trainer  # noqa: E402

LOOKS = 40
COUNTED = ("files", "threads", "processes", "held")
UTTERANCES = 200
SETTINGS: dict[str, str | float | int] = {
    "training.save_interval": 25,
    "training.keep_last": 2,
    "training.keep_epochs": 2,
    "training.log_interval": 10,
    "training.memory_scan": "false",
    "normalisation.alpha": 0.3,
    "normalisation.regulariser": 0.05,
    "normalisation.alpha_delay": 0.5,
    "normalisation.alpha_per_epoch": 0.5,
    "competitors.lookahead": 2,
    "data.batches.num_workers": 1,
    "data.batches.max_duration": 3,
}
# The stream that lives on; seconds that the others live, and after which the next one comes.
ENDLESS, SHORT, NEXT = 1_000_000, 7, 10


@dataclass(frozen=True)
class Look:
    """A process at a moment.

    Attributes:
        done: updates, or seconds of audio
        memory: resident bytes
        files: that are open
        threads: of it
        processes: that it has started
        held: bytes of tensors that streams hold
    """

    done: float
    memory: int
    files: int
    threads: int
    processes: int
    held: int


def look(done: float, engine: Engine | None = None) -> Look:
    """This process now, after what is not used any more was let go."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Look(
        done,
        pages * resource.getpagesize(),
        len(os.listdir("/proc/self/fd")),
        len(os.listdir("/proc/self/task")),
        len(descendants(os.getpid())),
        held_bytes(engine),
    )


def growth(looks: list[Look]) -> dict[str, float]:
    """The last quarter of looks against the second; both hold every phase of what is repeated."""
    quarter = len(looks) // 4
    early, late = looks[quarter : 2 * quarter], looks[-quarter:]

    def largest(some: list[Look], name: str) -> int:
        return max(getattr(one, name) for one in some)

    found: dict[str, float] = {"memory": largest(late, "memory") / largest(early, "memory")}
    return found | {name: largest(late, name) - largest(early, name) for name in COUNTED}


def train(updates: int, work: Path) -> list[Look]:
    """Train for so many updates; looks that are spread over them evenly."""
    data = make_toy_data(work / "data", train=UTTERANCES, dev=8, seed=5)
    config, _ = read_config(config_parser(None), toy_settings(data, **SETTINGS, **{"training.epochs": updates}))
    folder = work / "exp"
    folder.mkdir()
    trainer = Trainer(config, folder, World())
    after_update, looks = trainer.bookkeeper.after_update, [look(0)]

    def and_look(update: Update) -> None:
        after_update(update)
        step = trainer.state.progress.step
        if step >= len(looks) * updates / LOOKS:
            looks.append(look(step))
        trainer.stop.is_made = step >= updates

    trainer.bookkeeper.after_update = and_look  # type: ignore[method-assign]
    # A trainer listens to signals itself, and goes on doing so.
    listener = signal.getsignal(signal.SIGTERM)
    trainer.run()
    signal.signal(signal.SIGTERM, listener)
    return looks


def sound(seconds: int) -> np.ndarray:
    """Made-up audio, 16 bits: a sweep and noise."""
    time_axis = np.arange(seconds * RATE) / RATE
    sweep = np.sin(2 * np.pi * 300 * time_axis * (1 + 0.4 * np.sin(2 * time_axis)))
    noise = np.random.default_rng(0).standard_normal(len(time_axis))
    return np.rint(6000 * sweep * (1 + np.sin(9 * time_axis)) + 600 * noise).astype("<i2")


class Audience:
    """Counts what clients would be told."""

    def __init__(self) -> None:
        self.updates = 0
        self.errors = 0

    def __call__(self, frame: Frame) -> None:
        self.updates += frame.kind is Kind.UPDATE
        self.errors += frame.kind is Kind.FAILED


def stream(minutes: float, work: Path) -> list[Look]:
    """Recognise so many minutes of one stream and of others beside it; looks that are spread over them evenly."""
    write_checkpoint(work / "epoch-1.pt")
    audience = Audience()
    engine = Engine([load(work / "epoch-1.pt").recogniser(RecognitionConfig(beam=2))], audience)
    seconds, looks = round(60 * minutes), [look(0, engine)]
    pieces = [piece.tobytes() for piece in np.split(sound(60), 60)]
    engine.handle(Frame(Kind.OPEN, ENDLESS, payload=b"1"))
    for second in range(seconds):
        number, age = divmod(second, NEXT)
        if age == 0:
            engine.handle(Frame(Kind.OPEN, number, payload=b"1" if number % 2 else b"0"))
        for each in (ENDLESS, number) if age < SHORT else (ENDLESS,):
            engine.handle(Frame(Kind.AUDIO, each, time.monotonic(), pieces[second % 60]))
        if age == SHORT and number % 3:
            engine.handle(Frame(Kind.END, number, time.monotonic()))
        while engine.busy:
            engine.round()
        if age == SHORT:
            engine.handle(Frame(Kind.CLOSE, number))
        if second + 1 >= len(looks) * seconds / LOOKS:
            looks.append(look(second + 1, engine))
    if audience.errors or audience.updates < seconds:
        raise RuntimeError(f"{audience.updates} updates and {audience.errors} errors in {seconds} s of audio")
    return looks


def report(name: str, looks: list[Look], seconds: float) -> dict[str, Any]:
    """What was seen of a part, also printed."""
    grown = growth(looks)
    print(f"{name}: {looks[-1].done:g} {'updates' if name == 'training' else 'seconds of audio'}, memory "
          f"{looks[len(looks) // 4].memory / 1e6:.1f} -> {looks[-1].memory / 1e6:.1f} MB, "
          + ", ".join(f"{what} {value:+g}" for what, value in grown.items() if what != "memory"))  # fmt: skip
    return {"growth": grown, "processor_seconds": round(seconds, 1), "looks": [asdict(one) for one in looks]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=20_000, help="of the training, 0 for none (20000)")
    parser.add_argument("--minutes", type=float, default=120.0, help="of audio, 0 for none (120)")
    parser.add_argument("--json", type=Path, help="file to write the result to, of which other parts stay")
    arguments = parser.parse_args()
    # What is asked to stop removes its files.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    logging.disable(logging.INFO)
    parts: dict[str, tuple[float, Callable[[Any, Path], list[Look]]]] = {
        "training": (arguments.updates, train),
        "streams": (arguments.minutes, stream),
    }
    there = arguments.json is not None and arguments.json.is_file()
    result: dict[str, Any] = json.loads(arguments.json.read_text()) if there else {"ratios": {}}
    for name, (amount, run) in parts.items():
        if not amount:
            continue
        began = time.process_time()
        with tempfile.TemporaryDirectory() as work:
            result[name] = report(name, run(amount, Path(work)), time.process_time() - began)
        result["ratios"] |= {f"{name}_{what}": value for what, value in result[name]["growth"].items()}
        write_result(arguments.json, result)


if __name__ == "__main__":
    main()
