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
import re
import tempfile
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import FileIO
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from lhotse import CutSet
from lhotse.cut import Cut
from numpy.typing import NDArray

from transducer_gn.common.errors import UserError
from transducer_gn.common.files import exclusive, replace_when_done, write_text
from transducer_gn.common.json_files import parse_json
from transducer_gn.common.stages import Stage
from transducer_gn.data.cuts import name_and_duration, read_cut, text_of
from transducer_gn.data.epoch_plan import Seconds
from transducer_gn.data.tokenizer import Tokenizer

FORMAT = 1
RECORD = "index.json"
DURATIONS = "durations.npy"
OFFSETS = "offsets.npy"
LINES = "lines.jsonl"
FINGERPRINT = "fingerprint.txt"
DIGEST = re.compile(rb"[0-9a-f]{64}")
LINES_PER_REPORT = 100000


def write_array(path: Path, values: Sequence[Any] | NDArray[Any], dtype: type[np.generic]) -> None:
    """Write numbers to a file in one step."""
    with replace_when_done(path) as sibling, sibling.open("wb") as file:
        np.save(file, np.asarray(values, dtype=dtype))


def damaged(path: Path, problem: object) -> UserError:
    """The sentence about a file of an index, all of which are made again where they are missing."""
    return UserError(f"{path} is damaged ({problem}); delete {path.parent} and call again")


def read_array(path: Path, dtype: type[np.generic]) -> NDArray[Any]:
    """Map an array [N] of a type of numbers from a file; UserError if there is none in it."""
    try:
        # Of what anybody can write, numpy's own reader evaluates the head, and stumbles over much of it.
        with warnings.catch_warnings(action="ignore"):
            values = np.load(path, mmap_mode="r")
        if not isinstance(values, np.memmap) or values.ndim != 1 or values.dtype != np.dtype(dtype):
            raise ValueError(f"no list of {dtype.__name__}")
    except (ValueError, EOFError, TypeError, SyntaxError, TokenError, OverflowError, MemoryError, RecursionError) as e:
        raise damaged(path, type(e).__name__) from e
    return values


def read_durations(path: Path) -> Seconds:
    """Map the seconds [N] of utterances from a file; UserError if some are none."""
    durations: Seconds = read_array(path, np.float64)
    if not (np.isfinite(durations) & (durations > 0)).all():
        raise damaged(path, "not all are above zero and finite")
    return durations


def token_counts(
    folder: Path, tokenizer: Tokenizer, texts: Callable[[], Iterable[str]], utterances: int
) -> NDArray[np.int32]:
    """Return the number of tokens of each utterance, from `folder` if they were counted before; else count them.

    Args:
        folder: keeps the numbers for every token model
        tokenizer: the token model
        texts: gives all texts in order
        utterances: how many there are
    """
    path = folder / f"tokens-{tokenizer.fingerprint}.npy"

    def checked(counts: NDArray[np.int32]) -> NDArray[np.int32]:
        if len(counts) != utterances or (counts < 0).any():
            raise damaged(path, f"it should hold the numbers of tokens of {utterances} utterances")
        return counts

    if path.is_file():
        return checked(read_array(path, np.int32))
    logging.info("counting the tokens of all utterances")
    try:
        with exclusive(folder / ".lock"):
            if not path.is_file():
                write_array(path, checked(counted(tokenizer, texts())), np.int32)
        return checked(read_array(path, np.int32))
    except PermissionError:
        logging.warning("%s cannot be written to, so that they will be counted again at every start", folder)
        return checked(counted(tokenizer, texts()))


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
        self.durations = read_durations(folder / DURATIONS)
        self._offsets: NDArray[np.int64] = read_array(folder / OFFSETS, np.int64)
        self._file: FileIO | None = None
        if problem := self._offsets_fault():
            raise damaged(folder / OFFSETS, problem)

    def _offsets_fault(self) -> str | None:
        """Why the places of the lines are none, or None; so nothing is read but lines, however they are damaged."""
        offsets, size = self._offsets, (self.folder / LINES).stat().st_size
        if len(offsets) != len(self) + 1:
            return f"{len(offsets)} places for {len(self)} utterances"
        if offsets[0] != 0 or offsets[-1] != size or not (offsets[1:] > offsets[:-1]).all():
            return f"they do not part the {size} bytes of {LINES}"
        return None

    @property
    def fingerprint(self) -> str:
        """Identifies ids and durations of the utterances, in order."""
        text = (self.folder / FINGERPRINT).read_bytes()
        if not DIGEST.fullmatch(text):
            raise damaged(self.folder / FINGERPRINT, "no checksum")
        return text.decode()

    def __len__(self) -> int:
        return len(self.durations)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_file": None}

    def cut(self, position: int) -> Cut:
        """Read one utterance; UserError if its line is damaged."""
        start, end = int(self._offsets[position]), int(self._offsets[position + 1])
        try:
            if self._file is None:
                self._file = FileIO(self.folder / LINES)
            # The place is given with the call: processes that share the file by a fork do not move each other's.
            cut = read_cut(parse_json(os.pread(self._file.fileno(), end - start, start), dict[str, Any]), self._resolve)
            if cut.duration != self.durations[position]:
                raise ValueError(f"it lasts {cut.duration} s, not {self.durations[position]} as in {DURATIONS}")
        except (ValueError, OSError) as error:
            raise damaged(self.folder / LINES, f"utterance {position + 1}: {error}") from error
        return cut

    def tokens(self, tokenizer: Tokenizer) -> NDArray[np.int32]:
        """Return [N] the number of tokens of each utterance."""
        return token_counts(self.folder, tokenizer, self._texts, len(self))

    def _texts(self) -> Iterator[str]:
        with (self.folder / LINES).open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    yield text_of(parse_json(line, dict[str, Any]))
                except ValueError as error:
                    raise damaged(self.folder / LINES, f"utterance {number}: {error}") from error


def write_index(lines: Iterable[bytes], folder: Path) -> None:
    """Write what a `ManifestIndex` reads, from a manifest's lines; UserError names one that holds no cut."""
    durations, offsets, digest = array("d"), array("q", [0]), hashlib.sha256()
    with replace_when_done(folder / LINES) as sibling, sibling.open("wb") as file:
        for number, line in enumerate(lines, start=1):
            try:
                name, duration = name_and_duration(parse_json(line, dict[str, Any]))
            except ValueError as error:
                raise UserError(
                    f"{folder}: line {number} of its manifest is no cut ({error}); run prepare.sh again"
                ) from error
            durations.append(duration)
            digest.update(f"{name} {duration}\n".encode())
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
