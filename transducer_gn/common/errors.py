"""The error that a user can act on."""

import sys
from collections.abc import Callable, Sequence


class UserError(Exception):
    """One clear sentence that names the file, utterance or flag at fault and what to do about it."""


class NotFiniteError(ValueError):
    """Numbers that were computed are NaN or infinitely large: the fault of the data or of the model, not of a call.

    Attributes:
        utterances: numbers of the utterances at fault within their batch; empty where that is not known
    """

    def __init__(self, message: str, utterances: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.utterances = tuple(utterances)


def require(condition: bool, setting: str, problem: str) -> None:
    """Raise a `UserError` that names `setting` unless `condition` holds."""
    if not condition:
        raise UserError(f"{setting}: {problem}")


def require_positive(section: str, **settings: float) -> None:
    """Raise a `UserError` that names the first of `settings` that is not above zero."""
    for name, value in settings.items():
        require(value > 0, f"{section}.{name}", f"must be above 0, not {value}")


def require_probability(section: str, **settings: float) -> None:
    """Raise a `UserError` that names the first of `settings` that is not in [0, 1)."""
    for name, value in settings.items():
        require(0 <= value < 1, f"{section}.{name}", f"must be in [0, 1), not {value}")


def run_script(main: Callable[[], None]) -> None:
    """Run a script's `main`; a `UserError` becomes its sentence on standard error and exit code 2."""
    try:
        main()
    except UserError as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        sys.exit(2)
