"""Stages that run once: a record beside the results says from what they were made."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from transducer_gn.common.files import write_text


class Stage:
    """A stage whose results are complete once its record is written, and valid as long as its inputs stay the same.

    `inputs` must hold everything that the results depend on: settings, and fingerprints of the files read. `outputs`
    are the main results; a stage whose results were deleted is to be done again.
    """

    def __init__(self, record: Path, inputs: dict[str, Any], outputs: Sequence[Path] = ()) -> None:
        self.record = record
        self.outputs = outputs
        self._wanted = json.dumps(inputs, indent=2, sort_keys=True) + "\n"

    def is_done(self) -> bool:
        """Say whether the results are there and were made from the same inputs."""
        made = self.record.is_file() and self.record.read_text() == self._wanted
        return made and all(output.is_file() for output in self.outputs)

    def begin(self) -> None:
        """Make the results' folder; results of other inputs stop counting as complete."""
        self.record.parent.mkdir(parents=True, exist_ok=True)
        self.record.unlink(missing_ok=True)

    def finish(self) -> None:
        """Declare the results complete."""
        write_text(self.record, self._wanted)


def file_fingerprint(path: Path) -> str:
    """Return a checksum of the file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def listing_fingerprint(root: Path, files: Iterable[Path]) -> str:
    """Return a checksum of names, sizes and times of `files` below `root`: cheap, and changes when any file does."""
    digest = hashlib.sha256()
    for file in sorted(files):
        status = file.stat()
        digest.update(f"{file.relative_to(root)}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()
