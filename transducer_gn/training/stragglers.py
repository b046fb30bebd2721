"""A rank that hangs when nobody waits for it any more: the others are done, and only its launcher is left to notice.

While ranks train, one that hangs is noticed by those that wait for it. After the last message between them there is
nobody, and the launcher would wait for ever for a rank that never ends.
"""

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Seconds between two looks.
INTERVAL = 0.5


@contextmanager
def no_stragglers(processes: int, patience: float) -> Iterator[None]:
    """While the block runs, kill ranks that live on for longer than `patience` seconds after another has ended.

    Args:
        processes: how many ranks this process starts, all at once; it has no other children
        patience: seconds
    """
    is_over = threading.Event()
    watch = threading.Thread(target=_watch, args=(processes, patience, is_over), daemon=True)
    watch.start()
    try:
        yield
    finally:
        is_over.set()
        watch.join()


def _watch(processes: int, patience: float, is_over: threading.Event) -> None:
    since = None
    while not is_over.wait(INTERVAL):
        living = children()
        if not 0 < len(living) < processes:
            since = None
            continue
        since = time.monotonic() if since is None else since
        if time.monotonic() - since > patience:
            logging.warning("a rank has not ended within %g s after another, and hangs; it is killed", patience)
            for process in living:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            since = None


def children() -> list[int]:
    """Processes that this one has started and that have not ended, on Linux; elsewhere none are known."""
    found: list[int] = []
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            found += [int(number) for number in path.read_text().split()]
    return [process for process in found if not _has_ended(process)]


def _has_ended(process: int) -> bool:
    """Whether nothing is left of a process but its exit code."""
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True
