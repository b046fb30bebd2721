"""Was it made from the same inputs? Work that is done once, and done again only when what it depends on has changed.

Inputs are values that JSON can hold: settings, and fingerprints of the files that were read. They stand in a record
beside the results or in the file of results itself; two sets of inputs are the same if their JSON is.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Protocol, TypeVar

from transducer_gn.common.files import write_text
from transducer_gn.common.json_files import read_json


class Identified(Protocol):
    """Results that say what they were made from: everything that they depend on is in `identity`."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """What they were made from."""


Made = TypeVar("Made", bound=Identified)


def same_inputs(found: Any, wanted: Mapping[str, Any]) -> bool:
    """Whether inputs that were read from JSON are the ones that are `wanted`."""
    return found == json.loads(json.dumps(wanted))


def inputs_text(inputs: Mapping[str, Any]) -> str:
    """The content of a record: the same for the same inputs."""
    return json.dumps(inputs, indent=2, sort_keys=True)


def made_from(record: Path, inputs: Mapping[str, Any]) -> bool:
    """Whether a record is there and names these inputs; a broken one names none."""
    try:
        return same_inputs(read_json(record), inputs)
    except (FileNotFoundError, ValueError):
        return False


def read_if_made_from(path: Path, identity: Mapping[str, Any], read: Callable[[Path], Made]) -> Made | None:
    """The results in a file if they are what would come out of these inputs; None if they are not, or not there."""
    if not path.is_file():
        return None
    results = read(path)
    return results if same_inputs(results.identity, identity) else None


class Stage:
    """A stage whose results are complete once its record is written, and valid as long as its inputs stay the same.

    Args:
        record: the file that names the inputs
        inputs: everything that the results depend on
        outputs: the main results; a stage whose results were deleted is to be done again
    """

    def __init__(self, record: Path, inputs: Mapping[str, Any], outputs: Sequence[Path] = ()) -> None:
        self.record = record
        self.outputs = outputs
        # As they are now: whoever gave them may go on to change them.
        self._inputs = deepcopy(inputs)

    def is_done(self) -> bool:
        """Say whether the results are there and were made from the same inputs."""
        return made_from(self.record, self._inputs) and all(output.is_file() for output in self.outputs)

    def begin(self) -> None:
        """Make the results' folder; results of other inputs stop counting as complete."""
        self.record.parent.mkdir(parents=True, exist_ok=True)
        self.record.unlink(missing_ok=True)

    def finish(self) -> None:
        """Declare the results complete."""
        write_text(self.record, inputs_text(self._inputs) + "\n")


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
