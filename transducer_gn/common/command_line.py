"""What the programs in local/ share: flags from a function's signature, and errors that a user can act on."""

import errno
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from jsonargparse import CLI

from transducer_gn.common.errors import UserError, run_script

ADVICE = {
    errno.ENOSPC: "the disk is full; free some space and call again, finished work is kept",
    errno.EDQUOT: "your disk quota is used up; free some space and call again, finished work is kept",
    errno.EACCES: "permission denied; choose a folder you may write to, or change its permissions",
    errno.EPERM: "permission denied; choose a folder you may write to, or change its permissions",
    errno.EROFS: "the file system is read-only; choose another folder",
}


@contextmanager
def explained_disk_errors() -> Iterator[None]:
    """Turn a full disk or a folder that cannot be written into a `UserError`; other errors pass."""
    try:
        yield
    except OSError as error:
        if error.errno not in ADVICE:
            raise
        place = error.filename or "the output folder"
        raise UserError(f"cannot write {place}: {ADVICE[error.errno]}") from error


def with_underscores(arguments: Sequence[str]) -> list[str]:
    """Let flags be written with dashes, `--data-dir`, as well as the way Python names them."""
    return [
        "--" + name.replace("-", "_") + equals + value if flag.startswith("--") else flag
        for flag in arguments
        for name, equals, value in [flag.removeprefix("--").partition("=")]
    ]


def run_program(function: Callable[..., None]) -> None:
    """Run `function` with its arguments as flags (types and help come from signature and docstring)."""

    def main() -> None:
        with explained_disk_errors():
            CLI(function, as_positional=False, args=with_underscores(sys.argv[1:]))

    run_script(main)
