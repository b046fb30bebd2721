"""Calls of commands, from their start until all their processes have ended, and processes as seen from outside."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fault_files import TRAINING, FileKind

REPOSITORY = Path(__file__).resolve().parents[1]
TRAIN = REPOSITORY / "egs" / "librispeech" / "ASR" / "train.py"
# A life that has not ended by then hangs, and that is what is to be found out, also on a busy machine.
PATIENCE = 900
# Seconds that a rank waits for another, and that one has to end by itself before it is killed.
HANG_TIMEOUT = 10
SHUTDOWN_TIMEOUT = 5


@dataclass
class Life:
    """One call of train.py, or of another command.

    Attributes:
        folder: everything that it writes is in here
        process: the launcher
        log: what all processes have written to standard error
        kinds: of files that it writes
        least_hit: those of them whose writing was disturbed least so far
        hit: name of the kind whose writing was disturbed
        was_left: whether that file was left behind half-written
        seconds_hung: until a hang was noticed
    """

    folder: Path
    process: subprocess.Popen[bytes]
    log: Path
    kinds: tuple[FileKind, ...]
    least_hit: tuple[FileKind, ...] = ()
    hit: str | None = None
    was_left: bool = False
    seconds_hung: float | None = None

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
    return Life(folder, start(command, environment, log), log, TRAINING)


def start(command: list[str], environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Call a command whose output goes to a new file: what an earlier call left running writes on into the old one."""
    log.unlink(missing_ok=True)
    with log.open("wb") as output:
        return subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)


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


def kill_all(life: Life, rng: random.Random) -> bool:
    """Kill every process at once, as when power fails."""
    stopped: set[int] = set()
    # Some may have been about to start others.
    while new := set(life.everybody()) - stopped:
        send(list(new), signal.SIGSTOP)
        stopped |= new
    send(list(stopped), signal.SIGKILL)
    return True
