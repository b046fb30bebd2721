"""The server's side of the process that recognises: starts it, hands it audio, hands back what it says."""

import asyncio
import contextlib
import itertools
import json
import socket
import sys
from collections.abc import Callable
from typing import Any

from transducer_gn.common.errors import UserError
from transducer_gn.serving.frames import Frame, FrameReader, Kind
from transducer_gn.serving.worker import WorkerConfig

# Bytes on their way to the process before streams have to wait: those of clients that come, send something and go again
# are limited by nothing else.
MOST_WAITING = 1 << 21

# Told what the recogniser says about a stream.
Listener = Callable[[Frame], None]


class RecogniserProcess:
    """The process, and which stream's listener is which.

    Attributes:
        systems: what clients are told about each system
        window: seconds of audio that a stream is given before something of it is used up: a chunk, and the next one
        ended: done once the process is gone
    """

    def __init__(self, config: WorkerConfig) -> None:
        self._config = config
        self._numbers = itertools.count(1)
        self._listeners: dict[int, Listener] = {}
        self.systems: list[dict[str, Any]] = []
        self.window = 0.0
        self.ended: asyncio.Task[None]

    async def start(self) -> None:
        """Start the process and wait until its systems are loaded; UserError if they cannot be."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "transducer_gn.serving.worker",
                str(theirs.fileno()),
                self._config.to_json(),
                pass_fds=[theirs.fileno()],
            )
        self._reader, self._writer = await asyncio.open_connection(sock=ours)
        self._writer.transport.set_write_buffer_limits(MOST_WAITING)
        frames = FrameReader()
        first = None
        while first is None:
            data = await self._reader.read(1 << 16)
            if not data:
                raise UserError("the recogniser's process ended while it was loading; see what it wrote above")
            first = next(iter(frames.feed(data)), None)
        if first.kind is not Kind.READY:
            raise UserError(first.payload.decode())
        self.systems = json.loads(first.payload)
        needed = max(system.pop("seconds_needed") for system in self.systems)
        self.window = needed + max(system["chunk_seconds"] for system in self.systems)
        self.ended = asyncio.create_task(self._listen(frames))

    def open(self, listener: Listener, readings: bool) -> int:
        """Begin a stream; gives its number."""
        number = next(self._numbers)
        self._listeners[number] = listener
        self._write(Frame(Kind.OPEN, number, payload=b"1" if readings else b"0"))
        return number

    def audio(self, stream: int, came: float, samples: bytes) -> None:
        """Hand over 16-bit samples, and when they came."""
        self._write(Frame(Kind.AUDIO, stream, came, samples))

    async def drained(self) -> None:
        """Wait while too much is on its way to the process already."""
        # Without the process there is nothing to wait for: `ended` says so to everybody.
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    def end(self, stream: int, came: float) -> None:
        """Say that a stream's audio has ended, and when that was said."""
        self._write(Frame(Kind.END, stream, came))

    def close(self, stream: int) -> None:
        """Forget a stream."""
        if self._listeners.pop(stream, None) is not None:
            self._write(Frame(Kind.CLOSE, stream))

    async def stop(self) -> None:
        """End the process: at once if it is still loading, which nobody waits for, else once it has done its round."""
        if hasattr(self, "_process") and not self.systems:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        if hasattr(self, "_writer"):
            self._writer.close()
            with contextlib.suppress(ConnectionError):
                await self._writer.wait_closed()
        if hasattr(self, "_process"):
            try:
                await asyncio.wait_for(self._process.wait(), 10)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()

    def _write(self, frame: Frame) -> None:
        self._writer.write(frame.encode())

    async def _listen(self, frames: FrameReader) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await self._reader.read(1 << 18):
                for frame in frames.feed(data):
                    if listener := self._listeners.get(frame.stream):
                        listener(frame)
