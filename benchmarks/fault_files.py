"""Files whose writing is disturbed: which kinds there are, and how the moment is found at which one is written.

Files that are replaced as a whole begin as a hidden sibling, files that grow change. The kernel tells of either at once
(inotify), where a look now and then would miss all writes that take less than a millisecond.
"""

import ctypes
import os
import re
import select
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

# A file under its temporary name, or a folder under its own.
SIBLING = re.compile(r"\.partial-(?:[a-z0-9_]{8}-)?(.*)")
# Linux's numbers of what can happen in a folder that is watched.
MODIFIED, CREATED, IS_FOLDER = 0x2, 0x100, 0x40000000
EVENT = struct.Struct("iIII")


@dataclass(frozen=True)
class FileKind:
    """Files whose writing is disturbed.

    Attributes:
        name: of the kind
        patterns: of their names
        grows: whether they are appended to, rather than written beside their place and then put there
    """

    name: str
    patterns: tuple[str, ...]
    grows: bool = False

    def includes(self, write: "Write") -> bool:
        """Whether this is one of them."""
        found = re.fullmatch(SIBLING, write.path.name)
        if self.grows == write.begins or (write.begins and found is None):
            return False
        name = found[1] if found and write.begins else write.path.name
        return any(fnmatch(name, pattern) for pattern in self.patterns)


CHECKPOINTS = FileKind("checkpoints", ("*.pt",))
BEST = FileKind("best.json", ("best.json",))
METRICS = FileKind("metrics (grown)", ("metrics.jsonl",), grows=True)
METRICS_REWRITTEN = FileKind("metrics (rewritten)", ("metrics.jsonl",))
CHAPTERS = FileKind("chapters of the corpus", ("[0-9]", "[0-9][0-9]"))
MANIFESTS = FileKind("manifests", ("cuts_*", "recordings_*", "supervisions_*", "parts.json"))
FEATURES = FileKind("features", ("*.lca", "[0-9]*.jsonl.gz"))
TOKEN_MODELS = FileKind("token models", ("tokenizer.model", "tokens.txt"))
SHARDS = FileKind("shards", ("features.*.tar", "cuts.*.jsonl.gz", "durations.npy", "index.json"))
RECORDS = FileKind("records of stages", (".made*.json", "inputs.json"))
RESULTS = FileKind("results", ("results-*", "recogs-*", "errs-*", "wer-summary-*"))
UNFINISHED = FileKind("unfinished results (grown)", (".unfinished-*",), grows=True)
TIMES = FileKind("emission times and displays", ("latency-*", "display-*"))
PAGES = FileKind("tables and figures", ("report.*", "*.png", "*.svg"))
TRAINING = (CHECKPOINTS, BEST, METRICS, METRICS_REWRITTEN)
PREPARATION = (CHAPTERS, MANIFESTS, FEATURES, TOKEN_MODELS, SHARDS, RECORDS)
DECODING = (RESULTS, UNFINISHED)
ALL_KINDS = (MANIFESTS, FEATURES, TOKEN_MODELS, RECORDS, *TRAINING, *DECODING, TIMES, PAGES)


@dataclass(frozen=True)
class Write:
    """A file is being written.

    Attributes:
        begins: whether it was made just now, rather than changed
    """

    path: Path
    begins: bool


class Watch:
    """Tells of what is written below a folder, also in folders that are made later."""

    def __init__(self, folder: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._queue = self._libc.inotify_init1(os.O_NONBLOCK)
        if self._queue < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._folders: dict[int, Path] = {}
        # What is there by now was written before.
        for _ in self._add(folder):
            pass

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._queue)

    def writes(self, seconds: float) -> Iterator[Write]:
        """What is written from now on, if anything is within so many seconds."""
        if not select.select([self._queue], [], [], seconds)[0]:
            return
        content, place = os.read(self._queue, 1 << 16), 0
        while place < len(content):
            number, mask, _, length = EVENT.unpack_from(content, place)
            place += EVENT.size + length
            name = os.fsdecode(content[place - length : place].rstrip(b"\0"))
            if not name or number not in self._folders:
                continue
            path = self._folders[number] / name
            yield Write(path, begins=bool(mask & CREATED))
            if mask & CREATED and mask & IS_FOLDER:
                yield from self._add(path)

    def _add(self, folder: Path) -> Iterator[Write]:
        """Watch a folder and those in it, which may be gone again; gives what was made there before it was watched."""
        number = self._libc.inotify_add_watch(self._queue, os.fsencode(folder), MODIFIED | CREATED)
        if number < 0:
            return
        self._folders[number] = folder
        with suppress(OSError):
            for path in list(folder.iterdir()):
                yield Write(path, begins=True)
                if path.is_dir():
                    yield from self._add(path)
