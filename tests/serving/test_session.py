"""Invariant: a stream is closed at the recogniser however its client goes, and as soon as it is gone; the recogniser is
given no more than its next chunks need; messages without audio cost nothing; nothing is taken while too much is on its
way.
"""

import asyncio
import json
from typing import Any

import pytest

from transducer_gn.config import ServingConfig
from transducer_gn.serving.frames import Frame, Kind
from transducer_gn.serving.session import Session

# A tenth of a second.
PIECE = b"\1\0" * 1600
END = '{"type": "end"}'


class Client:
    """A connection: what it sends, and what it is sent."""

    def __init__(self, *messages: bytes | str) -> None:
        self.messages = list(messages)
        self.heard: list[dict[str, Any]] = []
        self.gone = asyncio.Event()

    async def recv(self) -> bytes | str:
        if not self.messages:
            await asyncio.Event().wait()
        return self.messages.pop(0)

    async def send(self, text: str) -> None:
        self.heard.append(json.loads(text))

    async def wait_closed(self) -> None:
        await self.gone.wait()


class Recogniser:
    """Notes what it is handed; takes nothing more once it holds `room` messages."""

    systems = ({"name": "one"}, {"name": "two"})
    window = 0.98

    def __init__(self, room: int = 1000) -> None:
        self.room = room
        self.taken: list[bytes] = []
        self.ended = self.closed = False

    def open(self, listener: Any, readings: bool) -> int:
        self.listener = listener
        return 7

    def audio(self, stream: int, came: float, samples: bytes) -> None:
        assert came > 0
        self.taken.append(samples)

    async def drained(self) -> None:
        if len(self.taken) >= self.room:
            await asyncio.Event().wait()

    def use(self, system: int, seconds: float) -> None:
        message = {"type": "text", "system": system, "stable": [], "withdrawn": [], "final": False}
        self.listener(Frame(Kind.UPDATE, 7, seconds, json.dumps(message).encode()))

    def end(self, stream: int, came: float) -> None:
        assert came > 0
        self.ended = True

    def close(self, stream: int) -> None:
        self.closed = True


async def begun(client: Client, recogniser: Recogniser) -> asyncio.Task:
    """A session, once it has nothing more to do."""
    running = asyncio.create_task(Session(client, recogniser, ServingConfig(), False).run('{"type": "ready"}'))
    await asyncio.sleep(0.05)
    return running


async def given_up(running: asyncio.Task) -> None:
    """End a session as the server's end does."""
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def test_messages_without_audio_are_not_handed_over() -> None:
    async def run() -> None:
        client, recogniser = Client(*[b""] * 500, PIECE, *[b""] * 500, END), Recogniser()
        await given_up(await begun(client, recogniser))
        assert recogniser.taken == [PIECE] and recogniser.ended and recogniser.closed

    asyncio.run(run())


def test_the_recogniser_is_given_what_its_next_chunks_need_and_in_the_end_everything() -> None:
    async def run() -> None:
        client, recogniser = Client(*[PIECE] * 50, END), Recogniser()
        running = await begun(client, recogniser)
        assert client.messages == [] and len(recogniser.taken) == 10 and not recogniser.ended
        recogniser.use(0, 0.65)
        # The other system has used nothing yet.
        assert len(recogniser.taken) == 10
        recogniser.use(1, 0.65)
        assert len(recogniser.taken) == 17 and not recogniser.ended
        for system in (0, 1):
            recogniser.use(system, 4.35)
        assert recogniser.taken == [PIECE] * 50 and recogniser.ended
        await given_up(running)

    asyncio.run(run())


def test_nothing_is_taken_while_too_much_is_on_its_way() -> None:
    async def run() -> None:
        client, recogniser = Client(*[PIECE] * 100), Recogniser(room=3)
        running = await begun(client, recogniser)
        assert len(recogniser.taken) == 3 and len(client.messages) == 96
        # Nor does one wait for a client that is gone.
        client.gone.set()
        assert await asyncio.wait_for(running, 5) is None
        assert len(recogniser.taken) == 3 and recogniser.closed

    asyncio.run(run())


def test_a_stream_that_ends_while_its_client_is_greeted_is_closed() -> None:
    class Deaf(Client):
        async def send(self, text: str) -> None:
            await asyncio.Event().wait()

    async def run() -> None:
        recogniser = Recogniser()
        await given_up(await begun(Deaf(PIECE), recogniser))
        assert recogniser.closed

    asyncio.run(run())
