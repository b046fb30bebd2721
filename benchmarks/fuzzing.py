"""A small fuzzer with coverage feedback: inputs that reach new lines of this package, or a new sentence, are kept.

Readers run in a process of their own, whose memory is limited, and whose present input stands in shared memory: a
reader that crashes, or never comes back, is found out and named with its input. A seed decides about every input.
"""

import json
import mmap
import os
import random
import re
import resource
import select
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from fuzz_mutations import Mutator

from transducer_gn.common.errors import UserError

WATCHED = str(Path(__file__).resolve().parents[1] / "transducer_gn")
# Seconds of processor time that one small input may take, and after which the process is killed if it does not heed
# that; and seconds without any, on however busy a machine.
SLOW, LOST, ASLEEP = 5.0, 30.0, 900
# Bytes of memory that reading may add to what the process has; inputs have a few thousand bytes.
ROOM = 1 << 30
LARGEST_INPUT = 1 << 20
MOST_KEPT = 2000
# Watching takes most of the time of readers in pure Python: the first inputs are watched, and of the others some.
WATCHED_FIRST, WATCHED_EVERY = 1000, 8
# Bytes by which an input may outgrow the good ones if it is to be changed further: its like would take all the time.
MOST_GROWTH = 2000
MOST_PER_FAILURE = 3
MOST_PER_PROCESS = 20_000
# A process tells what it has found after so many inputs, so that a call that is stopped has not lost more.
TOLD_EVERY = 1000


@dataclass(frozen=True)
class Target:
    """Something that reads.

    Attributes:
        read: reads an input; a `UserError` is the right answer to a bad one
        seeds: good inputs to begin with
        is_json: whether inputs are JSON, or lines of it, which can be changed value by value
        words: pieces of text that the reader knows
    """

    read: Callable[[bytes], None]
    seeds: Sequence[bytes]
    is_json: bool = False
    words: Sequence[bytes] = ()


@dataclass
class Findings:
    """What came of the inputs.

    Attributes:
        inputs: how many there were
        read: how many were read without a complaint
        sentences: how many ended in a sentence
        lines: lines of this package that they reached
        failures: by what happened and where, inputs that led to it
        messages: what was said at the first of each
        slowest: seconds of processor time of the slowest input
    """

    inputs: int = 0
    read: int = 0
    sentences: int = 0
    lines: int = 0
    slowest: float = 0.0
    failures: dict[str, list[bytes]] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)

    def fail(self, what: str, content: bytes, message: str = "") -> None:
        """Note a failure, with a few inputs of each kind and the first message."""
        known = self.failures.setdefault(what, [])
        self.messages.setdefault(what, message[:300])
        if len(known) < MOST_PER_FAILURE:
            known.append(content)

    def add(self, other: "Findings") -> None:
        """Take over what another process has found."""
        self.inputs += other.inputs
        self.read += other.read
        self.sentences += other.sentences
        self.lines = max(self.lines, other.lines)
        self.slowest = max(self.slowest, other.slowest)
        for what, contents in other.failures.items():
            for content in contents:
                self.fail(what, content, other.messages[what])

    def to_json(self) -> dict[str, Any]:
        """As JSON can hold it."""
        failures = {what: [content.hex() for content in contents] for what, contents in self.failures.items()}
        return vars(self) | {"slowest": round(self.slowest, 4), "failures": failures}

    @staticmethod
    def from_json(values: dict[str, Any]) -> "Findings":
        """From `to_json`."""
        failures = {what: [bytes.fromhex(text) for text in texts] for what, texts in values["failures"].items()}
        return Findings(**values | {"failures": failures})


class TooSlowError(Exception):
    """An input took too much processor time."""


class Coverage:
    """Which lines of this package were reached, since the beginning."""

    def __init__(self) -> None:
        self.seen: set[tuple[int, int]] = set()
        self._codes: dict[CodeType, bool] = {}
        self._new = False

    @contextmanager
    def watching(self, is_on: bool = True) -> Iterator[None]:
        """Watch while the block runs, if that is on."""
        self._new = False
        sys.settrace(self._call if is_on else None)
        try:
            yield
        finally:
            sys.settrace(None)

    def has_new(self) -> bool:
        """Whether the last block reached a line that none had reached before."""
        return self._new

    def _call(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        code = frame.f_code
        is_watched = self._codes.get(code)
        if is_watched is None:
            is_watched = self._codes[code] = code.co_filename.startswith(WATCHED)
        return self._line if is_watched else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        place = (id(frame.f_code), frame.f_lineno)
        if place not in self.seen:
            self.seen.add(place)
            self._new = True
        return self._line


def place_of(error: BaseException) -> str:
    """The innermost line of this package that an error passed, or of anything if it passed none."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(WATCHED)] or frames
    return f"{Path(own[-1].filename).name}:{own[-1].lineno} {own[-1].name}"


def skeleton(error: UserError) -> str:
    """A sentence without what changes from input to input: kinds of sentences are told apart."""
    return re.sub(r"[^a-z ]+", "", re.sub(r"'.*?'|\".*?\"|\(.*\)|/\S*", "", str(error)))[:80]


class Fuzzer:
    """Makes inputs, has them read, and keeps those that are worth changing further.

    Args:
        target: what reads
        seed: decides about all inputs
        present: shared memory that holds the input being read
    """

    def __init__(self, target: Target, seed: int, present: mmap.mmap) -> None:
        self._target = target
        self._rng = random.Random(seed)
        self._present = present
        self._kept = list(target.seeds)
        self._mutator = Mutator(self._rng, target.is_json, target.words)
        self._coverage = Coverage()
        self._said: Counter[str] = Counter()
        self._largest_kept = max(map(len, target.seeds)) + MOST_GROWTH
        self.findings = Findings()

    def run(self, inputs: int) -> Iterator[Findings]:
        """So many inputs; the good ones come first. Gives what was found, now and then and in the end."""
        signal.signal(signal.SIGPROF, self._too_slow)
        for content in self._target.seeds[:inputs]:
            self._try(content)
        while self.findings.inputs < inputs:
            content = self._mutator.changed(self._choose(), self._choose())[:LARGEST_INPUT]
            if self._try(content) and len(self._kept) < MOST_KEPT:
                self._kept.append(content)
            if self.findings.inputs % TOLD_EVERY == 0 and self.findings.inputs < inputs:
                yield self._found()
        yield self._found()

    def _found(self) -> Findings:
        self.findings.lines = len(self._coverage.seen)
        return self.findings

    def _choose(self) -> bytes:
        """One of those kept, the newest a little more often."""
        recent = self._kept[-20:] if self._rng.random() < 0.3 else self._kept
        return self._rng.choice(recent)

    def _too_slow(self, number: int, frame: object) -> None:
        raise TooSlowError(f"took more than {SLOW:g} s of processor time")

    def _try(self, content: bytes) -> bool:
        """Have an input read; gives whether it brought anything new and is small enough to keep."""
        findings, is_new_sentence = self.findings, False
        findings.inputs += 1
        self._present.seek(0)
        self._present.write(b"".join(n.to_bytes(8, "little") for n in (findings.inputs, len(content))) + content)
        start = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, SLOW)
        try:
            with self._coverage.watching(findings.inputs <= WATCHED_FIRST or findings.inputs % WATCHED_EVERY == 0):
                self._target.read(content)
            findings.read += 1
        except UserError as error:
            findings.sentences += 1
            words = skeleton(error)
            is_new_sentence = words not in self._said
            self._said[words] += 1
        # Whatever else comes is what is looked for.
        except BaseException as error:
            findings.fail(f"{type(error).__name__} at {place_of(error)}", content, str(error))
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        findings.slowest = max(findings.slowest, time.process_time() - start)
        return (self._coverage.has_new() or is_new_sentence) and len(content) <= self._largest_kept


def limit_memory() -> None:
    """Let this process have only so much more memory than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def check_seeds(target: Target) -> None:
    """UserError unless the target reads at least one of its seeds: changed copies of others stop where they stop."""
    *_, found = _in_child(target, len(target.seeds), seed=0)
    if found.read:
        return
    reason = "; ".join(found.messages.values())
    if not found.failures:
        # Each has ended in a sentence there, and does so here.
        try:
            target.read(target.seeds[0])
        except UserError as error:
            reason = str(error)
    raise UserError(f"none of the good inputs that this reader is to begin with is read ({reason}); mend them")


def fuzz(target: Target, inputs: int, seed: int, total: Findings) -> Iterator[Findings]:
    """Have so many inputs read in all, in processes one after another; gives what was found so far, again and again.

    Args:
        total: what was found before
    """
    check_seeds(target)
    while total.inputs < inputs:
        before = total.to_json()
        for found in _in_child(target, min(MOST_PER_PROCESS, inputs - total.inputs), hash((seed, total.inputs))):
            total = Findings.from_json(before)
            total.add(found)
            yield total


def _in_child(target: Target, inputs: int, seed: int) -> Iterator[Findings]:
    """Fuzz in a child, and give what it has found so far; if it dies, with what it died of."""
    present = mmap.mmap(-1, LARGEST_INPUT + 16)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child(target, inputs, seed, present, writing)
    os.close(writing)
    found, has_ended = Findings(), False
    try:
        for line in _lines(reading, child, Watch(child, present)):
            found = Findings.from_json(json.loads(line))
            yield found
        has_ended = found.inputs == inputs
    finally:
        os.close(reading)
        if not has_ended:
            # It has ended badly, or this process is to end.
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if not has_ended:
        count, size = (int.from_bytes(present[start : start + 8], "little") for start in (0, 8))
        found.inputs = count
        found.fail(f"the process died of signal {status & 127}", present[16 : 16 + size])
        yield found


def _lines(reading: int, child: int, watch: "Watch") -> Iterator[bytes]:
    """What a child says, line by line, until it has no more to say; one that is lost is killed."""
    said = b""
    while True:
        if select.select([reading], [], [], 5)[0]:
            piece = os.read(reading, 1 << 16)
            *lines, said = (said + piece).split(b"\n")
            yield from lines
            if not piece:
                return
        elif watch.is_lost():
            os.kill(child, signal.SIGKILL)


class Watch:
    """Tells whether a process will never be done with its present input."""

    def __init__(self, child: int, present: mmap.mmap) -> None:
        self._child, self._present = child, present
        self._input = b""
        self._since = self._used = 0.0

    def is_lost(self) -> bool:
        """Whether it has had enough time, of the processor or of the world, for the input that it has."""
        ticks = Path(f"/proc/{self._child}/stat").read_text().rpartition(")")[2].split()[11:13]
        used, now, number = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"), time.monotonic(), self._present[:8]
        if number != self._input:
            self._input, self._since, self._used = number, now, used
        return used - self._used > LOST or now - self._since > ASLEEP


def _child(target: Target, inputs: int, seed: int, present: mmap.mmap, writing: int) -> None:
    """The child's life, which ends here."""
    code = 1
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        limit_memory()
        fuzzer = Fuzzer(target, seed, present)
        with os.fdopen(writing, "wb") as file:
            for found in fuzzer.run(inputs):
                file.write(json.dumps(found.to_json()).encode() + b"\n")
                file.flush()
        code = 0
    finally:
        sys.stderr.flush()
        # Nothing of the parent's is to be cleaned up here.
        os._exit(code)
