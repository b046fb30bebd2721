"""Disks that are full and folders that nobody may write to: whoever writes ends with a sentence, and goes on later."""

import fcntl
import os
import random
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fault_lives import Life

# Bytes of the disk that can be filled: room for all that a run writes.
DISK = 256 << 20
FULL, READ_ONLY = "disk full", "folder read-only"
# Linux's requests for flags of files, and the flag that forbids every change.
GET_FLAGS, SET_FLAGS, IMMUTABLE = 0x80086601, 0x40086602, 0x10


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
    """Let nothing more be written to the small disk that the folder is on: a call ends with a sentence."""
    ballast, heard = life.folder.parent / "ballast", len(life.said())
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 16))
    try:
        _expect_a_sentence(life, ("the disk is full",), heard)
    finally:
        ballast.unlink()
    return True


def make_read_only(life: Life, rng: random.Random) -> bool:
    """Let nothing be made, replaced or removed in the folder or below any more: a call ends with a sentence."""
    if not life.folder.is_dir():
        return False
    heard = len(life.said())
    try:
        _set_read_only(life.folder, True)
        _expect_a_sentence(life, ("permission denied", "cannot write to"), heard)
    finally:
        _set_read_only(life.folder, False)
    return True


def can_do_all(folder: Path) -> bool:
    """Whether this user can do every fault: mount a small disk and make a folder on it read-only."""
    inner = folder / "disk" / "folder"
    try:
        with small_disk(folder / "disk"):
            inner.mkdir()
            _set_read_only(inner, True)
            _set_read_only(inner, False)
    except (OSError, subprocess.CalledProcessError):
        return False
    finally:
        (folder / "disk").rmdir()
    return True


def _expect_a_sentence(life: Life, words: tuple[str, ...], heard: int) -> None:
    """The life ends by itself, saying why in a sentence; or it was done before it had to write again.

    Args:
        words: of which one must be in it
        heard: length of what it had said before the fault, of which earlier faults may be part
    """
    code = life.wait()
    said = life.said()[heard:]
    if code and ("Traceback" in said or not any(some in said for some in words)):
        raise RuntimeError(f"no sentence with '{' or '.join(words)}', but exit code {code} and\n{life.said()[-3000:]}")


def _set_read_only(folder: Path, value: bool) -> None:
    """Forbid or allow changes of a folder and those below; permissions do not hold a superuser off, but a flag does."""
    with suppress(FileNotFoundError):
        if os.geteuid() == 0:
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                (flags,) = struct.unpack("l", fcntl.ioctl(descriptor, GET_FLAGS, struct.pack("l", 0)))
                flags = flags | IMMUTABLE if value else flags & ~IMMUTABLE
                fcntl.ioctl(descriptor, SET_FLAGS, struct.pack("l", flags))
            finally:
                os.close(descriptor)
        else:
            folder.chmod(0o555 if value else 0o755)
        # From the top down: in what is read-only already, no more folders are made.
        for inner in [path for path in folder.iterdir() if path.is_dir()]:
            _set_read_only(inner, value)
