"""Commands that make files, disturbed: whatever happens to their processes, the same call ends with the same files.

The undisturbed run and the disturbed ones use the same folder, one after another, so that paths within files are equal.
A command tells where it is by marks, such as the lines with which its stages begin. Faults are aimed at the stage that
was hit least, of those from the one that was reached on, at a random moment of its length in the undisturbed run.
"""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fault_content import differing
from fault_disks import FULL, READ_ONLY, fill_the_disk, make_read_only
from fault_files import FileKind
from fault_injection import WHILE_WRITING, kill_while_writing
from fault_lives import PATIENCE, Life, command_of, descendants, kill_all, send, start, until
from fault_tally import Tally

# A stage that ends sooner than this many seconds is aimed at as if it took that long.
SHORTEST = 0.2
ONE, THE_CALL = "kill -9 of one of its processes", "kill -9 of the call alone"
CUT_OFF = "unfinished results cut off"
# So many calls in a row to which nothing could be done: the next is disturbed wherever it is.
MOST_IN_VAIN = 2
# What a call says that finds another at work, which a killed one has left behind.
OCCUPIED = "another process"


@dataclass(frozen=True)
class Command:
    """A command to disturb.

    Attributes:
        words: the command line
        environment: its environment variables
        folder: everything that it makes is in here
        marks: where a call is, from what it has said so far: names of the stages begun
        content: what must be the same in the end
        files: kinds of files whose writing is disturbed
        unfinished: pattern of files in which it keeps what is not complete yet
        has_children: whether it starts other processes
        before: puts into the folder what a call needs
    """

    words: list[str]
    environment: dict[str, str]
    folder: Path
    marks: Callable[[Life], list[str]]
    content: Callable[[Path], dict[str, Any]]
    files: tuple[FileKind, ...]
    unfinished: str | None = None
    has_children: bool = True
    before: Callable[[Path], object] = lambda folder: None

    def kinds(self) -> list[str]:
        """Names of the faults that can be done to it; only a disk of its own can be filled."""
        impossible = [] if self.has_children else [ONE, THE_CALL]
        impossible += [] if os.path.ismount(self.folder.parent) else [FULL, READ_ONLY]
        return [kind for kind in (*FAULTS, *([CUT_OFF] if self.unfinished else [])) if kind not in impossible]

    def start(self, log: Path) -> Life:
        """Call it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.before(self.folder)
        return Life(self.folder, start(self.words, self.environment, log), log, self.files)


@dataclass
class Undisturbed:
    """A run that nothing happened to.

    Attributes:
        content: what it has made
        stages: names of its marks, and seconds that each took
    """

    content: dict[str, Any]
    stages: dict[str, float] = field(default_factory=dict)


def run_undisturbed(command: Command, log: Path) -> Undisturbed:
    """One run, its folder removed afterwards."""
    life, begun = command.start(log), {}
    while not life.is_over():
        for mark in command.marks(life):
            begun.setdefault(mark, time.monotonic())
        time.sleep(0.05)
    if life.wait() != 0:
        raise RuntimeError(f"undisturbed, it failed:\n{life.said()[-3000:]}")
    times = [*begun.values(), time.monotonic()]
    lengths = {mark: after - before for mark, before, after in zip(begun, times, times[1:], strict=False)}
    content = command.content(command.folder)
    shutil.rmtree(command.folder)
    return Undisturbed(content, lengths)


# Faults. Each is done to a call, and gives whether there was anything to do it to.


def kill_one(life: Life, rng: random.Random) -> bool:
    """Kill one of the processes that the call has started, as soon as it has."""
    until(lambda: bool(descendants(life.process.pid)), life, seconds=20, step=0.005)
    others = descendants(life.process.pid)
    send(rng.sample(others, min(1, len(others))), signal.SIGKILL)
    return bool(others)


def kill_the_call(life: Life, rng: random.Random) -> bool:
    """Kill the process that was called, and nothing that it has started."""
    send([life.process.pid], signal.SIGKILL)
    return True


def terminate(life: Life, rng: random.Random) -> bool:
    """Ask the call to stop, as a scheduler does."""
    send([life.process.pid], signal.SIGTERM)
    return True


FAULTS: dict[str, Callable[[Life, random.Random], bool]] = {
    "kill -9 of all processes": kill_all,
    ONE: kill_one,
    THE_CALL: kill_the_call,
    WHILE_WRITING: kill_while_writing,
    "SIGTERM": terminate,
    FULL: fill_the_disk,
    READ_ONLY: make_read_only,
}


class CommandDisturber:
    """Calls a command again and again and disturbs it.

    Args:
        command: what
        tally: what was done before, which grows
        work: folder for logs
    """

    def __init__(self, command: Command, tally: Tally, work: Path) -> None:
        self._command, self._tally, self._log = command, tally, work / "call.log"
        self._expected = run_undisturbed(command, self._log)
        tally.size = len(self._expected.content)
        self._rng = random.Random()
        self._left: dict[int, str] = {}
        self._in_vain = 0

    def run(self, faults: int) -> None:
        """One run from its beginning to its end, disturbed until there were so many faults in all."""
        # What is drawn in a run depends on no earlier one, so that a later call draws the same.
        self._rng.seed(f"{self._tally.seed} {self._tally.runs}")
        reached, is_complete = 0, False
        try:
            while not is_complete:
                self._tally.calls += 1
                life = self._command.start(self._log)
                self._left |= {life.process.pid: command_of(life.process.pid)}
                done = self._disturb(life, reached) if self._tally.faults < faults else None
                self._in_vain += 1
                is_complete = life.wait() == 0
                reached = max(reached, len(self._command.marks(life)) - 1)
                if done is not None:
                    self._count(life, *done, in_vain=is_complete)
                elif not is_complete:
                    self._wait_for_others(life)
        finally:
            self._end_all()
        self._tally.compare(differing(self._expected.content, self._command.content(self._command.folder)))
        shutil.rmtree(self._command.folder)

    def _count(self, life: Life, kind: str, stage: str, in_vain: bool) -> None:
        """Count a fault; one that came too late for a call to fail comes again."""
        if in_vain:
            self._tally.next_kinds.insert(0, kind)
            return
        self._tally.count(kind, life)
        self._in_vain = 0
        self._tally.stages[stage] += 1

    def _disturb(self, life: Life, reached: int) -> tuple[str, str] | None:
        """Wait for a moment, then do the next fault, if the call has not ended by then; gives its kind and stage."""
        stages, hit = list(self._expected.stages), self._tally.stages
        ahead = stages[min(reached, len(stages) - 1) :]
        if len(ahead) == 1 and hit[ahead[0]] > min(hit[stage] for stage in stages):
            # The end has had its share; the next run is for the others.
            return None
        # The first of those that were hit least so far: a run goes from stage to stage, and the next ones even it out.
        # But not every kind of fault can be done to every stage.
        aim = ahead[0] if self._in_vain > MOST_IN_VAIN else min(ahead, key=lambda stage: hit[stage])
        until(lambda: aim in self._command.marks(life), life)
        length = max(self._expected.stages[aim], SHORTEST)
        until(lambda: False, life, self._rng.uniform(0, length), step=0.005)
        self._left |= {pid: command_of(pid) for pid in descendants(life.process.pid)}
        before = self._stages_begun(life)
        kind = self._next(life)
        # Some kinds wait for something to be written; one cuts off what tells how far a call came.
        begun = max(before, self._stages_begun(life), key=len)
        return None if kind is None else (kind, begun[-1] if begun else "start")

    def _stages_begun(self, life: Life) -> list[str]:
        """Those that the call has begun, of the stages of the undisturbed run."""
        return [mark for mark in self._command.marks(life) if mark in self._expected.stages]

    def _next(self, life: Life) -> str | None:
        """Do the next kind of fault; each comes once, in another order, before any comes again.

        One that has nothing to be done to waits for the others, so that no run after another ends without any.
        """
        waiting = self._tally.next_kinds
        if not waiting:
            kinds = sorted(self._command.kinds())
            waiting += self._rng.sample(kinds, len(kinds))
        for kind in waiting[::-1]:
            if life.is_over():
                return None
            life.least_hit = self._tally.least_hit(life.kinds)
            waiting.remove(kind)
            if (self._cut_off if kind == CUT_OFF else FAULTS[kind])(life, self._rng):
                return kind
            waiting.insert(0, kind)
        return None

    def _cut_off(self, life: Life, rng: random.Random) -> bool:
        """Cut what is not complete off somewhere, after everything was killed."""

        def written() -> list[Path]:
            return [path for path in life.folder.rglob(self._command.unfinished or "") if path.stat().st_size]

        if not written():
            return False
        kill_all(life, rng)
        life.wait()
        for path in written():
            os.truncate(path, rng.randrange(path.stat().st_size))
        return True

    def _wait_for_others(self, life: Life) -> None:
        """Only what a killed call has left running may be in the way of an undisturbed one, and only while it runs."""
        if OCCUPIED not in life.said():
            raise RuntimeError(f"undisturbed, it failed:\n{life.said()[-3000:]}")
        end = time.monotonic() + PATIENCE
        while any(name and command_of(pid) == name for pid, name in self._left.items()):
            if time.monotonic() > end:
                raise RuntimeError(f"it is never free again:\n{life.said()[-3000:]}")
            time.sleep(0.2)

    def _end_all(self) -> None:
        """Leave nothing running."""
        mine = [pid for pid, name in self._left.items() if name and command_of(pid) == name]
        send([x for pid in mine for x in (*descendants(pid), pid)], signal.SIGKILL)
        self._left.clear()
