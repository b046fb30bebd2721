"""What can go wrong with a training of several ranks, as things that one can do to it.

A fault is done to a life at some moment, or to its files after it has ended. Everything here acts on processes and
files from outside, as the world does.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import fault_disks
from fault_disks import FULL, READ_ONLY
from fault_files import FileKind, Watch, Write
from fault_lives import PATIENCE, Life, command_of, kill_all, send, until

WHILE_WRITING = "kill -9 while a file is written"
# Seconds to wait for the kinds of files that were hit least, and then for any.
SECONDS_FOR_LEAST, SECONDS_FOR_ANY = 1, 20
# Seconds after which processes are listed anew, and mean of those into a write at which every second kill comes.
SECONDS_BETWEEN_LOOKS, MEAN_DELAY = 0.05, 0.02


# Faults. Each is done to a life, and gives whether there was anything to do it to.


def kill_a_rank(life: Life, rng: random.Random) -> bool:
    """Kill one rank: the launcher restarts all of them."""
    ranks = life.ranks()
    send(rng.sample(ranks, min(1, len(ranks))), signal.SIGKILL)
    return bool(ranks)


def kill_the_launcher(life: Life, rng: random.Random) -> bool:
    """Kill the launcher alone: its ranks must not train on."""
    ranks = life.ranks()
    send([life.process.pid], signal.SIGKILL)
    life.wait()
    # One that was about to start notices once it has read its program.
    end = time.monotonic() + 60
    while any(command_of(rank) for rank in ranks):
        if time.monotonic() > end:
            raise RuntimeError(f"ranks {ranks} live on after their launcher")
        time.sleep(0.05)
    return True


def kill_a_loader(life: Life, rng: random.Random) -> bool:
    """Kill a process that loads batches."""
    loaders = life.loaders()
    send(rng.sample(loaders, min(1, len(loaders))), signal.SIGKILL)
    return bool(loaders)


def terminate(life: Life, rng: random.Random) -> bool:
    """Ask the job to stop, as a scheduler does: it saves what it has, and ends."""
    send([life.process.pid], signal.SIGTERM)
    life.wait()
    return True


def stop_a_rank(life: Life, rng: random.Random) -> bool:
    """Stop one rank for ever: the others notice and all are restarted."""
    ranks = life.ranks()
    if not ranks:
        return False
    stopped, start = rng.choice(ranks), time.monotonic()
    send([stopped], signal.SIGSTOP)
    # Before a rank can wait for another it must have started, which takes minutes where others are busy.
    if not until(lambda: not command_of(stopped), life):
        raise RuntimeError(f"a hung rank was not noticed within {PATIENCE} s:\n{life.said()[-3000:]}")
    life.seconds_hung = time.monotonic() - start
    return True


def kill_while_writing(life: Life, rng: random.Random) -> bool:
    """Kill every process while a file is being written, of the kinds that were hit least if one comes soon."""
    delay = rng.expovariate(1 / MEAN_DELAY) if rng.random() < 0.5 else 0.0
    while not life.folder.is_dir():
        if life.is_over():
            return False
        time.sleep(0.01)
    with Watch(life.folder) as watch, _before_all_others():
        found = _next_write(life, watch)
        if found is None:
            return False
        kind, write, processes = found
        time.sleep(delay)
        # At once; those that have been started meanwhile come next.
        send(processes, signal.SIGSTOP)
        kill_all(life, rng)
    life.wait()
    life.hit, life.was_left = kind.name, write.begins and write.path.exists()
    return True


@contextmanager
def _before_all_others() -> Iterator[None]:
    """Have this process run as soon as it can: a small file is written sooner than a busy machine wakes who waits."""
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _next_write(life: Life, watch: Watch) -> tuple[FileKind, Write, list[int]] | None:
    """The next write of a file of a kind that is wanted, and the processes that there are."""
    start = time.monotonic()
    while (passed := time.monotonic() - start) < SECONDS_FOR_LEAST + SECONDS_FOR_ANY and not life.is_over():
        kinds = life.least_hit if passed < SECONDS_FOR_LEAST else life.kinds
        processes = life.everybody()
        for write in watch.writes(SECONDS_BETWEEN_LOOKS):
            for kind in kinds:
                if kind.includes(write):
                    return kind, write, processes
    return None


def fill_the_disk(life: Life, rng: random.Random) -> bool:
    """Let nothing more be written to the small disk that the folder is on, once there are ranks."""
    return bool(life.ranks()) and fault_disks.fill_the_disk(life, rng)


def make_read_only(life: Life, rng: random.Random) -> bool:
    """Let nothing be written into the folder any more, once there are ranks."""
    return bool(life.ranks()) and fault_disks.make_read_only(life, rng)


def truncate(life: Life, rng: random.Random) -> bool:
    """Cut the newest checkpoint off somewhere, after everything was killed."""
    if _newest(life.folder) is None:
        return False
    kill_all(life, rng)
    life.wait()
    newest = _newest(life.folder)
    if newest is not None:
        os.truncate(newest, rng.randrange(newest.stat().st_size))
    return newest is not None


def flip_bits(life: Life, rng: random.Random) -> bool:
    """Change a few bits of the newest checkpoint, after everything was killed."""
    if _newest(life.folder) is None:
        return False
    kill_all(life, rng)
    life.wait()
    newest = _newest(life.folder)
    if newest is not None:
        content = bytearray(newest.read_bytes())
        for _ in range(3):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        newest.write_bytes(content)
    return newest is not None


FAULTS: dict[str, Callable[[Life, random.Random], bool]] = {
    "kill -9 of a rank": kill_a_rank,
    "kill -9 of all processes": kill_all,
    "kill -9 of the launcher": kill_the_launcher,
    "kill -9 of a loader": kill_a_loader,
    "SIGTERM": terminate,
    "a rank hangs (SIGSTOP)": stop_a_rank,
    WHILE_WRITING: kill_while_writing,
    FULL: fill_the_disk,
    READ_ONLY: make_read_only,
    "newest checkpoint cut off": truncate,
    "newest checkpoint with flipped bits": flip_bits,
}


def _newest(folder: Path) -> Path | None:
    """The checkpoint that was written last, of those that were not cut off at their very beginning."""
    found = [path for path in folder.glob("*-*.pt") if path.stat().st_size > 0]
    return max(found, key=lambda path: path.stat().st_mtime_ns, default=None)
