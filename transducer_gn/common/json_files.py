"""Results as JSON that any program can read."""

import json
from pathlib import Path
from typing import Any

from transducer_gn.common.files import write_text


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
