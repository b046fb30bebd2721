"""Invariant: a stream is closed at the recogniser however its client goes; messages without audio cost nothing; no
message is taken from a client while the recogniser is behind.
"""

import asyncio
import json
from typing import Any

import pytest

from transducer_gn.config import ServingConfig
from transducer_gn.serving.session import Session


class Client:
    """A connection: what it sends, and what it is sent."""

    def __init__(self, *messages: bytes | str) -> None:
        self.messages = list(messages)
        self.heard: list[dict[str, Any]] = []

    async def recv(self) -> bytes | str:
        if not self.messages:
            await asyncio.Event().wait()
        return self.messages.pop(0)

    async def send(self, text: str) -> None:
        self.heard.append(json.loads(text))


class Recogniser:
    """Notes what it is handed; takes nothing more once it holds `room` messages."""

    systems = ({"name": "one"},)

    def __init__(self, room: int = 1000) -> None:
        self.room = room
        self.taken: list[bytes] = []
        self.ended = self.closed = False

    def open(self, listener: object, readings: bool) -> int:
        return 7

    async def audio(self, stream: int, samples: bytes) -> None:
        self.taken.append(samples)
        if len(self.taken) >= self.room:
            await asyncio.Event().wait()

    def end(self, stream: int) -> None:
        self.ended = True

    def close(self, stream: int) -> None:
        self.closed = True


async def served(client: Client, recogniser: Recogniser) -> None:
    """A session that goes on until it has nothing more to do, and is then given up, as at the server's end."""
    running = asyncio.create_task(Session(client, recogniser, ServingConfig(), False).run('{"type": "ready"}'))
    await asyncio.sleep(0.05)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def test_messages_without_audio_are_not_handed_over() -> None:
    client, recogniser = Client(*[b""] * 500, b"\1\0", *[b""] * 500, '{"type": "end"}'), Recogniser()
    asyncio.run(served(client, recogniser))
    assert recogniser.taken == [b"\1\0"] and recogniser.ended and recogniser.closed


def test_nothing_is_taken_while_the_recogniser_is_behind() -> None:
    client, recogniser = Client(*[b"\1\0"] * 100), Recogniser(room=3)
    asyncio.run(served(client, recogniser))
    assert len(recogniser.taken) == 3 and len(client.messages) == 97 and recogniser.closed


def test_a_stream_that_ends_while_its_client_is_greeted_is_closed() -> None:
    class Deaf(Client):
        async def send(self, text: str) -> None:
            await asyncio.Event().wait()

    recogniser = Recogniser()
    asyncio.run(served(Deaf(b"\1\0"), recogniser))
    assert recogniser.closed
