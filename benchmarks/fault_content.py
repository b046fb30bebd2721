"""What must be the same in the end, as names and values that can be compared one by one; not what tells the time."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

# Names of how long something took, in metrics, reports and displays; how far back a text changes is a result.
TIMED = re.compile(r"seconds_(?!back$).*|computed|final_p\d+_ms")
# Beginnings of titles in reports.
TABLES_OF_TIME = ("Time of one epoch",)


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Names of what is not in both, or not the same; of dictionaries in both, dotted names of what they hold."""
    found = []
    for name in sorted(one.keys() | other.keys()):
        if name not in one or name not in other:
            found.append(name)
        elif isinstance(one[name], dict) and isinstance(other[name], dict):
            found += [f"{name}.{inner}" for inner in differing(one[name], other[name])]
        elif one[name] != other[name]:
            found.append(name)
    return found


def checkpoint_content(path: Path) -> dict[str, Any]:
    """All of a checkpoint by dotted names, tensors bit for bit; but for sums of seconds, which no two calls share."""
    return dict(_leaves("", torch.load(path, weights_only=True)))


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Numbers, texts and tensors within containers; an empty container is a leaf, too."""
    if isinstance(value, Tensor):
        yield name, (str(value.dtype), tuple(value.shape), value.contiguous().numpy().tobytes())
    elif isinstance(value, dict) and value:
        for key, inner in value.items():
            if not TIMED.fullmatch(str(key)):
                yield from _leaves(f"{name}.{key}".lstrip("."), inner)
    elif isinstance(value, list | tuple) and value:
        for number, inner in enumerate(value):
            yield from _leaves(f"{name}.{number}", inner)
    else:
        # As text, since what is not a number does not equal itself; of a float, all digits.
        yield name, repr(value)


def without_seconds(text: bytes | str) -> str:
    """JSON without what was timed; as text, since what is not a number does not equal itself."""

    def pruned(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: item for name, item in pairs if not TIMED.fullmatch(name)}

    return json.dumps(json.loads(text, object_pairs_hook=pruned))


def metrics_content(content: str) -> list[str]:
    """Lines of metrics without what was timed."""
    return [without_seconds(line) for line in content.splitlines()]


def report_content(text: str) -> list[str]:
    """Tables of a report in text but those of times."""
    return [table for table in text.split("\n\n\n") if not table.startswith(TABLES_OF_TIME)]
