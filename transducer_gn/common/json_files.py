"""Results as JSON that any program can read, and JSON that anybody may have written."""

import json
from pathlib import Path
from typing import Any

from transducer_gn.common.files import write_text
from transducer_gn.common.typed import typed


def write_json(path: Path, value: Any) -> None:
    """Write a value in one step; NaN, which JSON does not have, as null."""
    write_text(path, json.dumps(without_nan(value), indent=1, allow_nan=False) + "\n")


def without_nan(value: Any) -> Any:
    """The same with None in place of NaN."""
    if isinstance(value, dict):
        return {name: without_nan(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and value != value else value


def parse_json(text: str | bytes, kind: Any = Any) -> Any:
    """The value of a text, as a `kind` (see `typed`); ValueError if it is no JSON or something else."""
    try:
        value = json.loads(text if isinstance(text, str) else text.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return typed(kind, value)


def read_json(path: Path, kind: Any = Any) -> Any:
    """The value in a file, as a `kind`; ValueError if it is something else, OSError if there is no such file."""
    return parse_json(path.read_bytes(), kind)
