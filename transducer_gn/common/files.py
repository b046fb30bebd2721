"""Files and folders that are either whole or not there: written to a temporary sibling, synced, renamed."""

import fcntl
import glob
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from transducer_gn.common.errors import UserError

PARTIAL = ".partial-"
# Seconds that processes which were killed may take to be gone.
PATIENCE = 5.0


@contextmanager
def replace_when_done(path: Path | str) -> Iterator[Path]:
    """Yield a temporary sibling of `path` to write to; rename it to `path` once the block ends well.

    The sibling keeps the suffixes of `path`, since many writers choose a format by them, and starts with a
    dot and ends up removed if the block raises: whatever was at `path` before then stays as it was. What killed
    processes have left behind of the same file is removed, too.
    """
    path = Path(path)
    remove_abandoned(path)
    handle, name = tempfile.mkstemp(prefix=PARTIAL, suffix=f"-{path.name}", dir=path.parent)
    # Held as long as this process lives and writes: see `remove_abandoned`. Not every file system has locks.
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX)
    # mkstemp makes files that only the owner can read; a result is as readable as any file its user makes.
    umask = os.umask(0)
    os.umask(umask)
    os.chmod(name, 0o666 & ~umask)
    sibling = Path(name)
    try:
        yield sibling
        sync(sibling)
        os.replace(sibling, path)
        sync(path.parent)
    finally:
        sibling.unlink(missing_ok=True)
        os.close(handle)


@contextmanager
def folder_when_done(path: Path) -> Iterator[Path]:
    """Yield an empty sibling of the folder `path` to fill; rename it to `path` once the block ends well.

    If the block raises, the sibling is removed; what a killed process has left behind of the same folder, too. All
    files are synced at once, at the end. Nothing but an empty folder may be at `path`.
    """
    partial = partial_folder(path)
    remove_folder(partial)
    partial.mkdir(parents=True)
    try:
        yield partial
        os.sync()
        partial.rename(path)
    finally:
        remove_partial_folder(path)


def remove_folder(path: Path) -> None:
    """Remove a folder and all in it, if it is there; OSError if that cannot be done."""
    with suppress(FileNotFoundError):
        shutil.rmtree(path)


def partial_folder(path: Path) -> Path:
    """Where the folder `path` is before it is whole."""
    return path.with_name(f"{PARTIAL}{path.name}")


def remove_partial_folder(path: Path) -> None:
    """Remove what is there of the folder `path` but not whole, as far as that can be done."""
    shutil.rmtree(partial_folder(path), ignore_errors=True)


def remove_abandoned(path: Path) -> None:
    """Remove temporary siblings of `path` whose writers are dead: those that nobody holds a lock on."""
    for sibling in path.parent.glob(f"{PARTIAL}*-{glob.escape(path.name)}"):
        with suppress(OSError), sibling.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            sibling.unlink()


@contextmanager
def exclusive(lock: Path, what: str | None = None) -> Iterator[None]:
    """Run the block while no other process runs one with the same file; where there are no locks, nobody waits.

    Args:
        what: what the other process does, to be said before waiting for it: "trains in exp/local"
    """
    with lock.open("ab") as file:
        with suppress(OSError):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if what is not None:
                    print(f"Waiting for another process, which {what}", file=sys.stderr, flush=True)
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def sole_user(path: Path, what: str) -> Iterator[None]:
    """Hold the lock file at `path` while the block runs; UserError if another process holds it and goes on.

    The lock ends with its process, however that ends. On file systems without locks nothing is held.

    Args:
        what: what the other process does, for the error: "trains in exp/local"
    """
    end = time.monotonic() + PATIENCE
    with path.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise UserError(f"another process {what}; wait until it has ended, or stop it") from None
                time.sleep(0.1)
            except OSError:
                break
        yield


def write_text(path: Path | str, text: str) -> None:
    """Write `text` to `path` in one step, as UTF-8."""
    with replace_when_done(path) as sibling:
        sibling.write_text(text, encoding="utf-8")


def sync(path: Path) -> None:
    """Force a file or a folder's entries to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
