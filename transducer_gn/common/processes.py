"""Independent pieces of work, each in a process of its own, a few at a time."""

import atexit
import ctypes
import functools
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from transducer_gn.common.errors import UserError

# The number of Linux's request to be sent a signal when the parent dies.
PR_SET_PDEATHSIG = 1


def run_each(work: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], jobs: int, label: str) -> list[Any]:
    """Call `work(*a)` for each `a` of `arguments` in a fresh process, `jobs` at a time; return results in order.

    Fresh, because espeak-ng's samples depend on what its process said before; forked, because importing torch and
    lhotse anew for each piece would take longer than the work. A `UserError` in a piece is raised here; the other
    pieces under way are stopped first. None lives on if this process is killed: it would write beside the next call's.
    """
    context = multiprocessing.get_context("fork")
    results: list[Any] = [None] * len(arguments)
    waiting = list(enumerate(arguments))[::-1]
    running: dict[Connection, tuple[int, BaseProcess]] = {}
    progress = Progress(label, len(arguments))
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                index, argument = waiting.pop()
                receiver, sender = context.Pipe(duplex=False)
                process: BaseProcess = context.Process(
                    target=_work_and_send, args=(work, argument, sender, os.getpid()), daemon=True
                )
                process.start()
                sender.close()
                running[receiver] = (index, process)
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)  # nothing else was waited for
                index, process = running.pop(ready)
                results[index] = _receive(ready, process, label)
                progress.step()
    finally:
        for _, process in running.values():
            process.kill()
            process.join()
    return results


def _work_and_send(work: Callable[..., Any], argument: tuple[Any, ...], sender: Connection, starter: int) -> None:
    die_with_parent(starter)
    try:
        outcome = (True, work(*argument))
    except (UserError, OSError) as error:
        outcome = (False, error)
    sender.send(outcome)


def _receive(receiver: Connection, process: BaseProcess, label: str) -> Any:
    try:
        fine, result = receiver.recv()
    except EOFError:
        process.join()
        raise UserError(
            f"{label}: a process ended with exit code {process.exitcode} before it was done; "
            "if it was killed for memory, call again with a smaller --nj"
        ) from None
    process.join()
    if fine:
        return result
    raise result


class Progress:
    """A counter on standard error: rewritten in place on a terminal, a line now and then in a log."""

    def __init__(self, label: str, total: int) -> None:
        self.label, self.total, self.done = label, total, 0
        self._terminal = sys.stderr.isatty()
        self._started = self._shown = time.monotonic()

    def step(self) -> None:
        """Count one piece as done."""
        self.done += 1
        now = time.monotonic()
        if self.done < self.total and now - self._shown < (0.2 if self._terminal else 10):
            return
        self._shown = now
        line = f"{self.label}: {self.done}/{self.total} ({now - self._started:.0f} s)"
        last = self.done == self.total
        print(f"\r{line}" if self._terminal else line, end="" if self._terminal and not last else "\n", file=sys.stderr)
        sys.stderr.flush()


def die_with_parent(parent: int | None = None) -> None:
    """Have the kernel kill this process when the one that started it dies, on Linux; elsewhere nothing happens.

    What a killed process had started would otherwise go on beside what the next call starts: ranks train, pieces of
    work write.

    Args:
        parent: process number of the one that started it, which may have died already; None for the present one
    """
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid() if parent is None else parent
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # It died before that was asked for.
        os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def no_children_left() -> Iterator[None]:
    """Kill what this process has started and what is still there when the block ends, however it ends.

    Python would ask such processes to stop and wait for them; one that does not listen would keep this one for ever.
    """
    try:
        yield
    finally:
        kill(multiprocessing.active_children())


@functools.cache
def kill_daemons_at_exit() -> None:
    """See to it that the daemons of this process, which Python asks to stop when it ends, are killed instead.

    It would wait for ever for one that does not listen.
    """
    # What is registered last comes first, and multiprocessing's own was there when it was imported.
    atexit.register(lambda: kill([child for child in multiprocessing.active_children() if child.daemon]))


def kill(children: Sequence[BaseProcess]) -> None:
    """Kill processes that nobody needs any more."""
    # Those who load batches have torch told of every child that dies; these die on purpose.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for child in children:
        child.kill()


def default_jobs() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0))
