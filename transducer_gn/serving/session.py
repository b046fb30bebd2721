"""One client: its audio on the way in, its text on the way out, and the limits that it has to keep."""

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import Awaitable
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from transducer_gn.common.units import SAMPLING_RATE
from transducer_gn.config import ServingConfig
from transducer_gn.serving.frames import Frame, Kind
from transducer_gn.serving.outbox import Outbox, Refusal
from transducer_gn.serving.recogniser_process import RecogniserProcess

SAMPLE_BYTES = 2
NOT_UNDERSTOOD = 'a message is either binary, with 16-bit samples, or the text {"type": "end"} once the audio has ended'


class Session:
    """A stream from its first message to its last.

    Args:
        connection: of the client, open
        recogniser: shared by all
        limits: that the client has to keep
        readings: whether the client wants to see competing readings
    """

    def __init__(
        self, connection: ServerConnection, recogniser: RecogniserProcess, limits: ServingConfig, readings: bool
    ) -> None:
        self._connection = connection
        self._recogniser = recogniser
        self._limits = limits
        self._outbox = Outbox(len(recogniser.systems))
        self._received = 0.0
        # Seconds of audio that each system has used up.
        self._used = [0.0] * len(recogniser.systems)
        # Audio that waits for its turn, and when it came; seconds that the recogniser was given; when the end came,
        # until the recogniser is told. What waits here costs the recogniser nothing if the client is gone by then.
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._given = 0.0
        self._end: float | None = None
        self._number = recogniser.open(self._hear, readings)

    async def run(self, greeting: str) -> Refusal | None:
        """Greet, take audio and send text until all is said, the client is gone, or there is a reason to refuse it."""
        tasks = [asyncio.create_task(self._receive()), asyncio.create_task(self._notice_leaving())]
        try:
            await sent(self._connection, greeting, self._limits.idle)
            return await self._send()
        finally:
            self._recogniser.close(self._number)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def refuse(self, refusal: Refusal) -> None:
        """End the stream with a refusal."""
        self._outbox.refuse(refusal)

    def _hear(self, frame: Frame) -> None:
        """Take what the recogniser says."""
        if frame.kind is Kind.FAILED:
            self._outbox.refuse(Refusal("failed", frame.payload.decode(), 1011))
            return
        message: dict[str, Any] = json.loads(frame.payload)
        self._used[message["system"]] = frame.number
        self._outbox.put(message)
        self._hand_over()

    def _hand_over(self) -> None:
        """Give the recogniser as much as its next chunks need."""
        while self._waiting and self._given - min(self._used) < self._recogniser.window:
            came, samples = self._waiting.popleft()
            self._given += duration(samples)
            self._recogniser.audio(self._number, came, samples)
        if self._end is not None and not self._waiting:
            self._recogniser.end(self._number, self._end)
            self._end = None

    async def _notice_leaving(self) -> None:
        """Give a client up as soon as it is gone, whatever it has sent before."""
        await self._connection.wait_closed()
        self._outbox.abandon()

    async def _receive(self) -> None:
        """Hand over audio; whatever goes wrong is the outbox's to tell."""
        idle = self._limits.idle
        try:
            while True:
                message = await asyncio.wait_for(self._connection.recv(), idle)
                refusal = self._refused(message) if isinstance(message, bytes) else self._take_text(message)
                if refusal is not None:
                    self._outbox.refuse(refusal)
                    return
                if isinstance(message, str):
                    break
                if message:
                    self._waiting.append((time.monotonic(), message))
                    await self._recogniser.drained()
                    self._hand_over()
            # Nothing more is expected but the end of the connection.
            await self._connection.recv()
            self._outbox.refuse(Refusal("not understood", "the stream has ended and takes no more messages", 1003))
        except TimeoutError:
            self._outbox.refuse(Refusal("idle", f"no message came for {idle:g} s; a stream goes on or ends"))
        except ConnectionClosed:
            self._outbox.abandon()

    def _refused(self, samples: bytes) -> Refusal | None:
        """Count audio; gives why it is not taken, None if it is."""
        if len(samples) % SAMPLE_BYTES:
            return Refusal("not understood", "a message of audio must hold whole samples of 16 bits", 1003)
        self._received += duration(samples)
        ahead = self._received - min(self._used)
        if ahead > self._limits.ahead:
            return Refusal(
                "ahead",
                f"the audio is {ahead:.1f} s ahead of the recogniser, and at most {self._limits.ahead:g} s wait "
                "for it; send no more than `seconds` of its last message and these",
            )
        return None

    def _take_text(self, text: str) -> Refusal | None:
        with contextlib.suppress(ValueError, RecursionError):
            if json.loads(text) == {"type": "end"}:
                self._end = time.monotonic()
                self._hand_over()
                return None
        return Refusal("not understood", NOT_UNDERSTOOD, 1003)

    async def _send(self) -> Refusal | None:
        """Send what there is to say until there is no more; a refusal is left to the caller."""
        while True:
            found = await self._outbox.take()
            if found is None or isinstance(found, Refusal):
                return found
            for message in found:
                if not await sent(self._connection, json.dumps(message, ensure_ascii=False), self._limits.idle):
                    return None


def duration(samples: bytes) -> float:
    """Seconds of samples."""
    return len(samples) / SAMPLE_BYTES / SAMPLING_RATE


async def sent(connection: ServerConnection, text: str, seconds: float) -> bool:
    """Send a message; one that does not go out within some seconds ends the connection."""
    return await in_time(connection, connection.send(text), seconds)


async def refuse(connection: ServerConnection, refusal: Refusal, seconds: float) -> None:
    """Say why, and close."""
    error = {"type": "error", "reason": refusal.reason, "sentence": refusal.sentence}
    if await sent(connection, json.dumps(error), seconds):
        await in_time(connection, connection.close(refusal.code, refusal.reason), seconds)


async def in_time(connection: ServerConnection, work: Awaitable[None], seconds: float) -> bool:
    """Whether work on a connection was done in time; if not, the connection is cut."""
    try:
        await asyncio.wait_for(work, seconds)
    except TimeoutError:
        connection.transport.abort()
        return False
    except ConnectionClosed:
        return False
    return True
