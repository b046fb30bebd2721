"""Manifests as compressed JSON lines that are the same bytes whenever their content is the same."""

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from transducer_gn.common.files import replace_when_done


def write_json_lines(path: Path, items: Iterable[dict[str, Any]]) -> None:
    """Write one JSON object per line, gzipped, in one step."""
    write_lines(path, (json.dumps(item, ensure_ascii=False).encode() for item in items))


def write_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Write gzipped lines in one step. The gzip header holds no time and no name, which would change the bytes."""
    with (
        replace_when_done(path) as sibling,
        sibling.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6) as file,
    ):
        for line in lines:
            file.write(line + b"\n")


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a gzipped file without their ends."""
    with gzip.open(path, "rb") as file:
        for line in file:
            yield line.rstrip(b"\n")


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a manifest."""
    return map(json.loads, read_lines(path))


def portable_path(path: Path, base: Path) -> str:
    """Return `path` as manifests hold it: relative to `base` where it lies below it, so that `base` can be moved."""
    path, base = path.resolve(), base.resolve()
    return str(path.relative_to(base)) if path.is_relative_to(base) else str(path)
