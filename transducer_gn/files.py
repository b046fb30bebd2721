"""Files that are either whole or not there: written to a temporary sibling, synced, renamed."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replace_when_done(path: Path | str) -> Iterator[Path]:
    """Yield a temporary sibling of `path` to write to; rename it to `path` once the block ends well.

    The sibling keeps the suffixes of `path`, since many writers choose a format by them, and starts with a
    dot and ends up removed if the block raises: whatever was at `path` before then stays as it was.
    """
    path = Path(path)
    handle, name = tempfile.mkstemp(prefix=".partial-", suffix=f"-{path.name}", dir=path.parent)
    os.close(handle)
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
