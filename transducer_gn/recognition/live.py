"""Many sources recognised side by side, their text on a terminal or as JSON lines, and what it cost in all.

Recognising is `stream`'s; here is only what comes in and what is shown.
"""

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TextIO

from torch import Tensor

from transducer_gn.common.errors import UserError
from transducer_gn.recognition.stream import RecognitionStream, StreamingRecogniser
from transducer_gn.recognition.transcript import Revisions, Transcript

# Moves the cursor to the start of the line and clears it.
CLEAR_LINE = "\r\x1b[K"


@dataclass
class Source:
    """Something to recognise: its name, and its audio in pieces, which may turn out to be no audio at all."""

    name: str
    pieces: Iterator[Tensor]


@dataclass
class Totals:
    """What a run came to."""

    streams: int = 0
    failed: int = 0
    most_concurrent: int = 0
    audio_seconds: float = 0.0
    wall_seconds: float = 0.0

    @property
    def real_time_factor(self) -> float:
        """Seconds of work per second of audio."""
        return self.wall_seconds / self.audio_seconds if self.audio_seconds else 0.0

    def sentence(self) -> str:
        """All of it in one line."""
        return (
            f"{self.streams} streams, {self.failed} failed, up to {self.most_concurrent} at a time; "
            f"{self.audio_seconds:.1f} s of audio in {self.wall_seconds:.1f} s: "
            f"real-time factor {self.real_time_factor:.3f}"
        )


class Display:
    """Prints results: JSON lines, or text, on a terminal in place as long as it may change."""

    def __init__(self, as_json: bool, output: TextIO = sys.stdout) -> None:
        self.as_json = as_json
        self.output = output
        self._in_place = not as_json and output.isatty()
        self._shown: dict[str, Transcript] = {}

    def show(self, name: str, transcript: Transcript, seconds: float) -> None:
        """Print what has changed since the last time, after so many seconds of audio."""
        if self._shown.get(name) == transcript:
            return
        self._shown[name] = transcript
        if self.as_json:
            self._print_json(name, transcript, {"seconds": round(seconds, 3), "final": False})
        elif self._in_place:
            rest = transcript.text[len(transcript.stable) :]
            self.output.write(f"{CLEAR_LINE}{name}: {transcript.stable}|{rest}")
        self.output.flush()

    def show_final(self, name: str, transcript: Transcript, seconds: float, revisions: Revisions) -> None:
        """Print the text that will not change any more."""
        self._shown.pop(name, None)
        if self.as_json:
            self._print_json(name, transcript, {"seconds": round(seconds, 3), "final": True}, revisions)
        else:
            self.output.write((CLEAR_LINE if self._in_place else "") + f"{name}: {transcript.text}\n")
        self.output.flush()

    def show_failure(self, name: str, sentence: str) -> None:
        """Print why there is no result."""
        self._shown.pop(name, None)
        if self.as_json:
            self.output.write(json.dumps({"name": name, "error": sentence}) + "\n")
        else:
            self.output.write((CLEAR_LINE if self._in_place else "") + f"{name}: {sentence}\n")
        self.output.flush()

    def _print_json(
        self, name: str, transcript: Transcript, when: dict[str, object], revisions: Revisions | None = None
    ) -> None:
        line = {"name": name} | when | asdict(transcript)
        if revisions is not None:
            line["revisions"] = asdict(revisions)
        self.output.write(json.dumps(line, ensure_ascii=False) + "\n")


def recognise_sources(
    recogniser: StreamingRecogniser, sources: Iterator[Source], concurrent: int, display: Display
) -> Totals:
    """Recognise sources, up to `concurrent` at a time, a piece of each in turn and all chunks of a turn in one batch.

    A source that fails is reported and dropped; the others go on.
    """
    totals = Totals()
    began = time.perf_counter()
    waiting = iter(sources)
    active: list[tuple[Source, RecognitionStream]] = []
    while True:
        while len(active) < concurrent and (source := next(waiting, None)) is not None:
            active.append((source, recogniser.open()))
            totals.streams += 1
        if not active:
            break
        totals.most_concurrent = max(totals.most_concurrent, len(active))
        active = _turn(recogniser, active, display, totals)
    totals.wall_seconds = time.perf_counter() - began
    return totals


def _turn(
    recogniser: StreamingRecogniser,
    active: list[tuple[Source, RecognitionStream]],
    display: Display,
    totals: Totals,
) -> list[tuple[Source, RecognitionStream]]:
    """One piece of every source; gives those that have not ended."""
    fed = [(source, stream) for source, stream in active if _feed(source, stream, display, totals)]
    recogniser.advance(stream for _, stream in fed)
    remaining = []
    for source, stream in fed:
        try:
            transcript = stream.partial()
        except UserError as error:
            _fail(source, str(error), display, totals)
            continue
        if stream.finished:
            display.show_final(source.name, transcript, stream.seconds, stream.revisions)
            totals.audio_seconds += stream.seconds
        else:
            display.show(source.name, transcript, stream.seconds)
            remaining.append((source, stream))
    return remaining


def _feed(source: Source, stream: RecognitionStream, display: Display, totals: Totals) -> bool:
    """Give the stream its next piece, or its end; whether that went well."""
    try:
        piece = next(source.pieces, None)
        if piece is None:
            stream.end()
        else:
            stream.add(piece)
    except UserError as error:
        _fail(source, str(error), display, totals)
        return False
    return True


def _fail(source: Source, sentence: str, display: Display, totals: Totals) -> None:
    display.show_failure(source.name, sentence.removeprefix(f"{source.name}: "))
    totals.failed += 1
