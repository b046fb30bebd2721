"""Commands side by side: a few at a time, in order, each with its share of the cores; a stop reaches all of them.

What commands write comes with the name of their job where several run. On SIGTERM, SIGINT (Ctrl-C) or SIGHUP every
command under way gets SIGTERM and the time to save what it has; a second signal ends them at once.
"""

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import IO, Protocol

from transducer_gn.common.errors import UserError
from transducer_gn.common.processes import default_jobs
from transducer_gn.common.threads import SETTINGS, decided

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True)
class Job:
    """A command to run.

    Attributes:
        name: of its run; stands before each line it writes where several run
        command: program and arguments; a program `python` is the one that runs this
        after: name of a job that must have ended before this one starts
        alone: whether nothing may run beside it
        threads: of each of its processes; None for as many as it decides itself
        has_children: whether the command is a shell script, which does not hand a stop on to what it runs
    """

    name: str
    command: tuple[str, ...]
    after: str | None = None
    alone: bool = False
    threads: int | None = None
    has_children: bool = False

    def text(self) -> str:
        """The command as one types it."""
        return shlex.join(self.command)


class Stopped(Exception):  # noqa: N818 (no error: somebody asked for it)
    """A signal asked to stop, and all commands have ended.

    Attributes:
        code: exit code that tells the signal
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by signal {number}")
        self.code = 128 + number


class Launcher(Protocol):
    """What becomes of jobs: run, or only shown."""

    def start(self, job: Job) -> None:
        """Take the next job; may return before it has ended."""

    def finish(self) -> None:
        """Return when all jobs have ended; UserError if one failed."""


class Printer:
    """Shows commands instead of running them."""

    def start(self, job: Job) -> None:
        """Show a job's command."""
        print(job.text(), flush=True)

    def finish(self) -> None:
        """Nothing has been started."""


def threads_for(jobs: int, beside: int) -> int | None:
    """Threads for processes of which `beside` run side by side; None where all decide themselves: with one job.

    OMP_NUM_THREADS wins, if the user has set it.
    """
    if jobs == 1:
        return None
    own = os.environ.get("OMP_NUM_THREADS")
    return int(own) if own and own.isdecimal() else -(-default_jobs() // beside)


@dataclass
class JobRunner:
    """Runs jobs in the order they come, at most `jobs` at a time.

    Attributes:
        jobs: how many run at a time; with 1 their output is shown as it is
    """

    jobs: int
    _running: dict[str, tuple[Job, subprocess.Popen[bytes]]] = field(default_factory=dict)
    _failed: bool = False
    # Ended jobs, by name, and signals, as numbers: whatever a waiting runner must know of.
    _events: SimpleQueue[str | int] = field(default_factory=SimpleQueue)
    _output: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Within this block signals stop the jobs, and nothing is left running after it."""
        before = {number: signal.signal(number, lambda got, _: self._events.put(got)) for number in STOPS}
        try:
            yield
        finally:
            self._end_all(signal.SIGTERM)
            for number, handler in before.items():
                signal.signal(number, handler)

    def start(self, job: Job) -> None:
        """Start a job as soon as there is a place for it and what it waits for has ended, any of its own name included.

        One that nothing may run beside has ended when this returns.
        """
        while self._running and not self._failed and self._must_wait(job):
            self._next_event()
        if self._failed:
            self.finish()
        while not self._events.empty():
            self._next_event()
        self._launch(job)
        if self.jobs == 1 or job.alone:
            self.finish()

    def finish(self) -> None:
        """Wait for all jobs; UserError if any failed, `Stopped` if a signal came."""
        while self._running:
            self._next_event()
        if self._failed:
            raise UserError("a command failed, see above; the same call goes on from there")

    def _must_wait(self, job: Job) -> bool:
        is_full = len(self._running) >= self.jobs
        # Jobs are known by their names; several of one run are told apart by nothing but their order.
        return is_full or job.alone or job.after in self._running or job.name in self._running

    def _next_event(self) -> None:
        event = self._events.get()
        if isinstance(event, int):
            print(f"stopping: {', '.join(self._running) or 'nothing is running'}", file=sys.stderr, flush=True)
            self._end_all(signal.SIGTERM)
            raise Stopped(event)
        _, process = self._running.pop(event)
        self._failed |= process.returncode != 0

    def _end_all(self, number: int) -> None:
        """Send all jobs a signal and wait for them; a further signal to this process ends them at once."""
        for job, process in self._running.values():
            send(process, number, job.has_children)
        while self._running:
            event = self._events.get()
            if isinstance(event, int):
                for _, process in self._running.values():
                    send(process, signal.SIGKILL, whole_group=True)
            else:
                self._running.pop(event)

    def _launch(self, job: Job) -> None:
        program, *arguments = job.command
        program = sys.executable if program == "python" else program
        environment = dict(os.environ)
        if job.threads is not None:
            environment["OMP_NUM_THREADS"] = str(job.threads)
            # To the job this number is a decision, after which it leaves the rest alone; here nobody has decided.
            if job.alone and 1 < job.threads == default_jobs() and not decided(os.environ):
                environment |= SETTINGS
        # A session of its own: Ctrl-C reaches this process only, which then tells the job.
        process = subprocess.Popen(
            [program, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if self.jobs > 1 else None,
            stderr=subprocess.STDOUT if self.jobs > 1 else None,
            start_new_session=True,
        )
        self._running[job.name] = job, process
        threading.Thread(target=self._watch, args=(job.name, process), daemon=True).start()

    def _watch(self, name: str, process: subprocess.Popen[bytes]) -> None:
        """Pass a job's output on and tell of its end."""
        reader = None
        if process.stdout is not None:
            reader = threading.Thread(target=self._show, args=(name, process.stdout), daemon=True)
            reader.start()
        process.wait()
        if reader is not None:
            # What the job has left running may hold its output open.
            reader.join(timeout=5)
        self._events.put(name)

    def _show(self, name: str, output: IO[bytes]) -> None:
        for line in output:
            # Where nobody reads, go on reading: else the job would wait for ever.
            with self._output, suppress(OSError, ValueError):
                print(f"[{name}] {line.decode(errors='replace')}", end="", flush=True)


def send(process: subprocess.Popen[bytes], number: int, whole_group: bool) -> None:
    """Send a signal to a job that may have ended, or to it and all that it has started."""
    with suppress(ProcessLookupError):
        if whole_group:
            os.killpg(process.pid, number)
        elif process.returncode is None:
            os.kill(process.pid, number)
