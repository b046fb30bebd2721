"""A compact index of a large manifest: durations and numbers of tokens as arrays, and each line by its place in a file.

Training needs two things of a manifest: how long every utterance is, to plan batches, and the utterances of one batch
at a time. The first is read from arrays in a few milliseconds, the second by workers, a line for each utterance, so
that nobody parses the whole manifest and nobody holds it. Arrays are mapped from files, which all ranks of a machine
share.
"""

import hashlib
import json
import logging
import os
import tempfile
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.serialization import deserialize_item
from numpy.typing import NDArray

from transducer_gn.common.errors import UserError
from transducer_gn.common.files import exclusive, replace_when_done, write_text
from transducer_gn.common.stages import Stage
from transducer_gn.data.epoch_plan import Seconds
from transducer_gn.data.tokenizer import Tokenizer

FORMAT = 1
RECORD = "index.json"
DURATIONS = "durations.npy"
OFFSETS = "offsets.npy"
LINES = "lines.jsonl"
FINGERPRINT = "fingerprint.txt"
LINES_PER_REPORT = 100000


def write_array(path: Path, values: Sequence[Any] | NDArray[Any], dtype: type[np.generic]) -> None:
    """Write numbers to a file in one step."""
    with replace_when_done(path) as sibling, sibling.open("wb") as file:
        np.save(file, np.asarray(values, dtype=dtype))


def read_array(path: Path) -> NDArray[Any]:
    """Map an array from a file; UserError if there is none in it."""
    try:
        # Of what anybody can write, numpy's own reader evaluates the head, and stumbles over much of it.
        with warnings.catch_warnings(action="ignore"):
            values = np.load(path, mmap_mode="r")
        if not isinstance(values, np.memmap) or values.ndim != 1 or values.dtype.kind not in "if":
            raise ValueError("no list of numbers")
    except (ValueError, EOFError, TypeError, SyntaxError, TokenError, OverflowError, MemoryError, RecursionError) as e:
        raise UserError(f"{path} is damaged ({type(e).__name__}); delete {path.parent} and call again") from e
    return values


def token_counts(folder: Path, tokenizer: Tokenizer, texts: Callable[[], Iterable[str]]) -> NDArray[np.int32]:
    """Return the number of tokens of each utterance, from `folder` if they were counted before; else count them.

    Args:
        folder: keeps the numbers for every token model
        tokenizer: the token model
        texts: gives all texts in order
    """
    path = folder / f"tokens-{tokenizer.fingerprint}.npy"
    if path.is_file():
        return read_array(path)
    logging.info("counting the tokens of all utterances")
    try:
        with exclusive(folder / ".lock"):
            if not path.is_file():
                write_array(path, counted(tokenizer, texts()), np.int32)
        return read_array(path)
    except PermissionError:
        logging.warning("%s cannot be written to, so that they will be counted again at every start", folder)
        return counted(tokenizer, texts())


def counted(tokenizer: Tokenizer, texts: Iterable[str]) -> NDArray[np.int32]:
    """Count the tokens of each text."""
    return np.fromiter((len(tokenizer.encode(text)) for text in texts), np.int32)


class ManifestIndex:
    """The utterances of a manifest by their place in it. Can be copied to other processes.

    Args:
        folder: what `write_index` made
        resolve: completes a cut that was read, such as by the folder that its paths are relative to
    """

    def __init__(self, folder: Path, resolve: Callable[[Cut], Cut] | None = None) -> None:
        self.folder = folder
        self._resolve = resolve
        self.durations: Seconds = read_array(folder / DURATIONS)
        self._offsets: NDArray[np.int64] = read_array(folder / OFFSETS)
        self._file: int | None = None

    @property
    def fingerprint(self) -> str:
        """Identifies ids and durations of the utterances, in order."""
        return (self.folder / FINGERPRINT).read_text()

    def __len__(self) -> int:
        return len(self.durations)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_file": None}

    def cut(self, position: int) -> Cut:
        """Read one utterance."""
        if self._file is None:
            self._file = os.open(self.folder / LINES, os.O_RDONLY)
        start, end = int(self._offsets[position]), int(self._offsets[position + 1])
        # The place is given with the call: processes that share the file by a fork do not move each other's.
        cut = deserialize_item(json.loads(os.pread(self._file, end - start, start)))
        return cut if self._resolve is None else self._resolve(cut)

    def tokens(self, tokenizer: Tokenizer) -> NDArray[np.int32]:
        """Return [N] the number of tokens of each utterance."""
        return token_counts(self.folder, tokenizer, lambda: map(text_of, self._items()))

    def _items(self) -> Iterator[dict[str, Any]]:
        with (self.folder / LINES).open("rb") as file:
            yield from map(json.loads, file)


def text_of(cut: dict[str, Any]) -> str:
    """Return the text of a cut as a manifest holds it."""
    return cut["supervisions"][0]["text"]


def write_index(lines: Iterable[bytes], folder: Path) -> None:
    """Write what a `ManifestIndex` reads, from a manifest's lines."""
    durations, offsets, digest = array("d"), array("q", [0]), hashlib.sha256()
    with replace_when_done(folder / LINES) as sibling, sibling.open("wb") as file:
        for number, line in enumerate(lines, start=1):
            cut = json.loads(line)
            durations.append(cut["duration"])
            digest.update(f"{cut['id']} {cut['duration']}\n".encode())
            offsets.append(offsets[-1] + file.write(line + b"\n"))
            if number % LINES_PER_REPORT == 0:
                logging.info("indexed %d utterances", number)
    write_array(folder / DURATIONS, durations, np.float64)
    write_array(folder / OFFSETS, offsets, np.int64)
    write_text(folder / FINGERPRINT, digest.hexdigest())


def stored_index(
    lines: Callable[[], Iterable[bytes]], fingerprint: str, folder: Path, resolve: Callable[[Cut], Cut]
) -> ManifestIndex:
    """Return the index in `folder`; make it if it is not there or was made of another manifest.

    Several ranks may call this at once: one makes it, the others wait.
    """
    inputs = {"manifest": fingerprint, "format": FORMAT}
    folder.mkdir(exist_ok=True)
    with exclusive(folder / ".lock"):
        stage = Stage(folder / RECORD, inputs, [folder / name for name in (LINES, DURATIONS, OFFSETS, FINGERPRINT)])
        if not stage.is_done():
            logging.info("making an index of the training manifest in %s; this is done once", folder)
            stage.begin()
            for counted in folder.glob("tokens-*.npy"):
                counted.unlink()
            write_index(lines(), folder)
            stage.finish()
    return ManifestIndex(folder, resolve)


class TemporaryIndex(ManifestIndex):
    """The index of cuts that come from no prepared folder; it goes when this object goes."""

    def __init__(self, cuts: CutSet) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="index-")
        folder = Path(self._place.name)
        write_index((json.dumps(cut.to_dict()).encode() for cut in cuts), folder)
        super().__init__(folder)
