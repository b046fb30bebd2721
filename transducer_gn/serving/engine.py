"""Recognises all streams of the server: takes frames of audio, advances all streams together, gives frames of text.

It knows neither sockets nor clocks but the one that delays are measured by. Every round takes one chunk of every stream
that has one, in one batch for each system; whoever sends much at once gets no more of a round than others.
"""

import json
import time
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np

from transducer_gn.common.errors import UserError
from transducer_gn.common.units import SAMPLING_RATE
from transducer_gn.recognition.stream import StreamingRecogniser
from transducer_gn.recognition.transcript import Word
from transducer_gn.serving.changes import Withdrawn, withdrawn_words
from transducer_gn.serving.frames import Frame, Kind
from transducer_gn.serving.readings import Dispute, ReadingsWatch


def word_json(word: Word) -> dict[str, object]:
    """A word as clients see it."""
    return {"text": word.text, "start": round(word.start, 3), "end": round(word.end, 3)}


def withdrawn_json(gone: Withdrawn, settled: int) -> dict[str, object]:
    """A withdrawn word as clients see it, its place counted from the beginning of the stream."""
    return word_json(gone.word) | {"place": settled + gone.place, "instead": gone.instead}


def dispute_json(dispute: Dispute) -> dict[str, object]:
    """Competing readings as clients see them."""
    shares = {word: round(share, 4) for word, share in dispute.shares.items()}
    return {"seconds": round(dispute.seconds, 3), "place": dispute.place, "shares": shares}


class Track:
    """One stream under one system.

    Args:
        recogniser: of the system
        system: its number
        watched: whether to follow the readings that compete
    """

    def __init__(self, recogniser: StreamingRecogniser, system: int, watched: bool) -> None:
        self.recogniser = recogniser
        self.system = system
        self.stream = recogniser.open()
        self.done = False
        self._watch = ReadingsWatch(self.stream.text, recogniser.encoder.framing) if watched else None
        self._waiting: list[np.ndarray] = []
        self._heard = 0
        self._chunks = 0
        self._settled = 0
        self._open: list[Word] = []
        # When the audio that completed each chunk came, of chunks that are not recognised yet; and when the end came.
        self._complete: deque[float] = deque()
        self._ended: float | None = None
        # Whether something has come that `prepare` has not looked at.
        self._fresh = False

    @property
    def ready(self) -> bool:
        """Whether there is a chunk to recognise, or a stream whose end nobody has been told."""
        return not self.done and (self.stream.is_ready or self.stream.finished)

    @property
    def waits(self) -> bool:
        """Whether a round would do something: there is something to recognise, or there may be after `prepare`."""
        return self.ready or (self._fresh and (bool(self._complete) or self._ended is not None))

    def add(self, samples: np.ndarray, came: float) -> None:
        """Take 16-bit samples [n] that came at a time."""
        self._waiting.append(samples)
        self._heard += len(samples)
        while self._heard >= self._samples_needed(self._chunks + len(self._complete) + 1):
            self._complete.append(came)
        self._fresh = True

    def end(self, came: float) -> None:
        """Take the end of the audio."""
        self._ended = came
        self._fresh = True

    def prepare(self) -> None:
        """Compute features where they may complete a chunk, unless one is complete already; UserError if that fails.

        Not as the audio comes: so small messages cost little, and a stream that is gone before its turn costs nothing.
        """
        if self._ended is not None and self._fresh:
            self._flush()
            self.stream.end()
        elif self._complete and not self.stream.is_ready:
            self._flush()
        self._fresh = False

    def update(self, recognised: bool) -> Frame:
        """What is new for the client, after a chunk was recognised or the end was found; UserError if that failed."""
        self._chunks += recognised
        # What is recognised after the last complete chunk was completed by the end.
        came = self._complete.popleft() if recognised and self._complete else self._ended or 0.0
        settled, still_open = self.stream.text.take()
        self.done = self.stream.finished
        if self.done:
            settled, still_open = settled + still_open, []
        gone = withdrawn_words(self._open, settled + still_open)
        used = self.stream.seconds
        if not self.done:
            used = min(used, self._samples_needed(self._chunks) / SAMPLING_RATE)
        message: dict[str, object] = {
            "type": "text",
            "system": self.system,
            "seconds": round(used, 3),
            "stable": [word_json(word) for word in settled],
            "open": [word_json(word) for word in still_open],
            "withdrawn": [withdrawn_json(each, self._settled) for each in gone],
            "delay": round(time.monotonic() - came, 4),
            "final": self.done,
        }
        self._settled += len(settled)
        self._open = still_open
        if self._watch is not None:
            message["readings"] = [dispute_json(dispute) for dispute in self._watch.take()]
            self._watch.settled = self._settled
        if not self.done and self._ended is None:
            self.prepare()
        return Frame(Kind.UPDATE, 0, used, json.dumps(message, ensure_ascii=False).encode())

    def _samples_needed(self, chunks: int) -> int:
        """Audio that must have come before so many chunks can be there."""
        encoder = self.recogniser.encoder
        return encoder.framing.samples_heard(chunks * encoder.size)

    def _flush(self) -> None:
        if self._waiting:
            self.stream.add(np.concatenate(self._waiting))
            self._waiting = []


class Engine:
    """All streams.

    Args:
        recognisers: one for each system; every stream goes through all of them
        send: takes frames for the other process
    """

    def __init__(self, recognisers: list[StreamingRecogniser], send: Callable[[Frame], None]) -> None:
        self._recognisers = recognisers
        self._send = send
        self._tracks: dict[int, list[Track]] = {}

    @property
    def busy(self) -> bool:
        """Whether a round would do something."""
        return any(track.waits for tracks in self._tracks.values() for track in tracks)

    def handle(self, frame: Frame) -> None:
        """Take a frame; audio of streams that are not there any more is dropped."""
        if frame.kind is Kind.OPEN:
            watched = frame.payload == b"1"
            self._tracks[frame.stream] = [Track(each, n, watched) for n, each in enumerate(self._recognisers)]
        elif frame.kind is Kind.CLOSE:
            self._tracks.pop(frame.stream, None)
        elif frame.kind is Kind.END:
            for track in self._tracks.get(frame.stream, []):
                track.end(frame.number)
        else:
            samples = np.frombuffer(frame.payload, dtype="<i2")
            for track in self._tracks.get(frame.stream, []):
                track.add(samples, frame.number)

    def round(self) -> None:
        """Take one chunk of every stream that has one."""
        for number, tracks in list(self._tracks.items()):
            try:
                for track in tracks:
                    track.prepare()
            except UserError as error:
                self._fail(number, error)
        for system, recogniser in enumerate(self._recognisers):
            ready = [(stream, track) for stream, track in self._ready() if track.system == system]
            stepped = [track.stream for _, track in ready if track.stream.is_ready]
            if stepped:
                recogniser.step(stepped)
            chosen = {id(stream) for stream in stepped}
            for number, track in ready:
                if number not in self._tracks:
                    continue
                try:
                    made = track.update(id(track.stream) in chosen)
                except UserError as error:
                    self._fail(number, error)
                else:
                    self._send(Frame(made.kind, number, made.number, made.payload))

    def _ready(self) -> Iterator[tuple[int, Track]]:
        return ((number, track) for number, tracks in self._tracks.items() for track in tracks if track.ready)

    def _fail(self, stream: int, error: UserError) -> None:
        del self._tracks[stream]
        self._send(Frame(Kind.FAILED, stream, payload=str(error).encode()))
