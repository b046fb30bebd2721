"""Manifests as compressed JSON lines that are the same bytes whenever their content is the same."""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from transducer_gn.common.errors import UserError
from transducer_gn.common.files import replace_when_done
from transducer_gn.common.json_files import parse_json

LONGEST_LINE = 1 << 24


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
    """Yield the lines of a gzipped file without their ends; UserError if it is damaged."""
    try:
        with gzip.open(path, "rb") as file:
            # A few bytes of a file can stand for a line without end.
            while line := file.readline(LONGEST_LINE):
                if len(line) == LONGEST_LINE:
                    raise EOFError("a line without end")
                yield line.rstrip(b"\n")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path} is damaged ({error}); delete it and run prepare.sh again") from error


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a manifest; UserError names the line that holds none."""
    for number, line in enumerate(read_lines(path), start=1):
        try:
            yield parse_json(line, dict[str, Any])
        except ValueError as error:
            raise UserError(f"{path}, line {number}: {error}; delete it and run prepare.sh again") from error


def portable_path(path: Path, base: Path) -> str:
    """Return `path` as manifests hold it: relative to `base` where it lies below it, so that `base` can be moved."""
    path, base = path.resolve(), base.resolve()
    return str(path.relative_to(base)) if path.is_relative_to(base) else str(path)
