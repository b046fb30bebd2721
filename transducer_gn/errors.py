"""The error that a user can act on."""

import sys
from collections.abc import Callable


class UserError(Exception):
    """One clear sentence that names the file, utterance or flag at fault and what to do about it."""


def run_script(main: Callable[[], None]) -> None:
    """Run a script's `main`; a `UserError` becomes its sentence on standard error and exit code 2."""
    try:
        main()
    except UserError as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        sys.exit(2)
