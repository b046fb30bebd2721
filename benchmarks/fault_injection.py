"""What can go wrong with a training of several ranks, as things that one can do to it.

A `Life` is one call of train.py, from its start until all its processes have ended. A fault is done to a life at some
moment, or to its files after it has ended. Everything here acts on processes and files from outside, as the world does.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
TRAIN = REPOSITORY / "egs" / "librispeech" / "ASR" / "train.py"
# A life that has not ended by then hangs, and that is what is to be found out, also on a busy machine.
PATIENCE = 900
# Seconds that a rank waits for another, and that one has to end by itself before it is killed.
HANG_TIMEOUT = 10
SHUTDOWN_TIMEOUT = 5
# Bytes of the disk that can be filled: room for all checkpoints of a run.
DISK = 256 << 20
PARTIAL = ".partial-*"


@dataclass
class Life:
    """One call of train.py.

    Attributes:
        folder: the experiment's
        process: the launcher
        log: what all processes have written to standard error
        read_only: whether the folder was made so
    """

    folder: Path
    process: subprocess.Popen[bytes]
    log: Path
    read_only: bool = field(default=False)

    def ranks(self) -> list[int]:
        """Processes that train."""
        return [pid for pid in children(self.process.pid) if "train.py" in command_of(pid)]

    def loaders(self) -> list[int]:
        """Processes that load batches."""
        return [pid for rank in self.ranks() for pid in children(rank)]

    def everybody(self) -> list[int]:
        """All processes, the launcher last; none once that has ended, whose number may be another's by then."""
        return [] if self.is_over() else [*descendants(self.process.pid), self.process.pid]

    def is_over(self) -> bool:
        """Whether the launcher has ended."""
        return self.process.poll() is not None

    def wait(self) -> int:
        """Until the launcher has ended; gives its exit code."""
        return self.process.wait(PATIENCE)

    def said(self) -> str:
        """What it has written to standard error."""
        return self.log.read_text(errors="replace")


def start_life(arguments: list[str], folder: Path, log: Path) -> Life:
    """Call train.py with two ranks."""
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(REPOSITORY),
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(SHUTDOWN_TIMEOUT),
    }
    command = [sys.executable, str(TRAIN), *arguments, "--exp-dir", str(folder), "--world-size", "2"]
    command += ["--device", "cpu", f"--training.hang_timeout={HANG_TIMEOUT}"]
    with log.open("wb") as errors:
        process = subprocess.Popen(command, env=environment, stdout=errors, stderr=errors, start_new_session=True)
    return Life(folder, process, log)


def children(pid: int) -> list[int]:
    """Processes that a process has started."""
    with suppress(OSError):
        return [int(x) for x in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def descendants(pid: int) -> list[int]:
    """Processes that a process has started, and theirs."""
    found = children(pid)
    return [x for child in found for x in descendants(child)] + found


def command_of(pid: int) -> str:
    """The command line of a process; empty if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


def send(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to processes, of which some may have ended."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def until(condition: Callable[[], bool], life: Life, seconds: float = PATIENCE, step: float = 0.05) -> bool:
    """Wait for a condition; gives whether it came before the life ended or the time was up."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        if life.is_over():
            return condition()
        time.sleep(step)
    return False


# Faults. Each is done to a life, and gives whether there was anything to do it to.


def kill_a_rank(life: Life, rng: random.Random) -> bool:
    """Kill one rank: the launcher restarts all of them."""
    ranks = life.ranks()
    send(rng.sample(ranks, min(1, len(ranks))), signal.SIGKILL)
    return bool(ranks)


def kill_all(life: Life, rng: random.Random) -> bool:
    """Kill every process at once, as when power fails."""
    stopped: set[int] = set()
    # Some may have been about to start others.
    while new := set(life.everybody()) - stopped:
        send(list(new), signal.SIGSTOP)
        stopped |= new
    send(list(stopped), signal.SIGKILL)
    return True


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
    stopped = rng.choice(ranks)
    send([stopped], signal.SIGSTOP)
    # Before a rank can wait for another it must have started, which takes minutes where others are busy.
    if not until(lambda: not command_of(stopped), life):
        raise RuntimeError(f"a hung rank was not noticed within {PATIENCE} s:\n{life.said()[-3000:]}")
    return True


def kill_while_writing(life: Life, rng: random.Random) -> bool:
    """Kill every process while a file is being written."""

    def is_being_written() -> bool:
        return any(life.folder.glob(PARTIAL))

    found = until(is_being_written, life, seconds=30, step=0.0005)
    if found:
        kill_all(life, rng)
    return found


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mount a small file system at `folder` while the block runs; needs a superuser."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", folder], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill_the_disk(life: Life, rng: random.Random) -> bool:
    """Let nothing more be written to the small disk that the folder is on: training ends with a sentence."""
    if not life.ranks():
        return False
    ballast, heard = life.folder.parent / "ballast", len(life.said())
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 16))
    try:
        _expect_a_sentence(life, "the disk is full", heard)
    finally:
        ballast.unlink()
    return True


def make_read_only(life: Life, rng: random.Random) -> bool:
    """Let nothing be written into the folder any more: training ends with a sentence."""
    if not life.folder.is_dir() or not life.ranks():
        return False
    heard = len(life.said())
    _set_read_only(life.folder, True)
    try:
        _expect_a_sentence(life, "permission denied", heard)
    finally:
        _set_read_only(life.folder, False)
    return True


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
    "kill -9 while a file is written": kill_while_writing,
    "disk full": fill_the_disk,
    "folder read-only": make_read_only,
    "newest checkpoint cut off": truncate,
    "newest checkpoint with flipped bits": flip_bits,
}


def _expect_a_sentence(life: Life, words: str, heard: int) -> None:
    """The life ends by itself, saying why in a sentence; or it was done before it had to write again.

    Args:
        heard: length of what it had said before the fault, of which earlier faults may be part
    """
    code = life.wait()
    said = life.said()[heard:]
    if code and (words not in said or "Traceback" in said):
        raise RuntimeError(f"no sentence with '{words}', but exit code {code} and\n{life.said()[-3000:]}")


def can_do_all(folder: Path) -> bool:
    """Whether this user can do every fault: mount a small disk and make a folder on it read-only."""
    try:
        with small_disk(folder / "disk"):
            (folder / "disk" / "folder").mkdir()
            _set_read_only(folder / "disk" / "folder", True)
            _set_read_only(folder / "disk" / "folder", False)
    except (OSError, subprocess.CalledProcessError):
        return False
    finally:
        (folder / "disk").rmdir()
    return True


def _set_read_only(folder: Path, value: bool) -> None:
    """Forbid or allow changes of a folder; permissions do not hold a superuser off, so that a flag must."""
    if os.geteuid() == 0:
        subprocess.run(["chattr", "+i" if value else "-i", folder], check=True, capture_output=True)
    else:
        folder.chmod(0o555 if value else 0o755)


def _newest(folder: Path) -> Path | None:
    """The checkpoint that was written last, of those that were not cut off at their very beginning."""
    found = [path for path in folder.glob("*-*.pt") if path.stat().st_size > 0]
    return max(found, key=lambda path: path.stat().st_mtime_ns, default=None)
