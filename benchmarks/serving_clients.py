"""Clients of the live server for its benchmark: honest ones, and all kinds of others."""

import asyncio
import contextlib
import json
import random
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from transducer_gn.common.units import SAMPLING_RATE as RATE

PIECE = 1280
END = json.dumps({"type": "end"})
# How a connection that is not wanted is answered, and seconds to wait for an answer.
TURNED_AWAY = b"HTTP/1.1 503"
PATIENCE = 30


@dataclass
class Outcome:
    """What an honest client got.

    Attributes:
        text: the final text; None if there was none
        delays: seconds from when a chunk was complete until its text was there, chunk by chunk
    """

    text: str | None = None
    delays: list[float] = field(default_factory=list)


def open_stream(port: int, query: str = "", **options: object) -> connect:
    """A connection for a stream."""
    return connect(f"ws://127.0.0.1:{port}/stream{query}", compression=None, open_timeout=60, **options)


def cut(samples: np.ndarray) -> list[bytes]:
    """Samples in messages of 80 ms."""
    return [samples[start : start + PIECE].astype("<i2").tobytes() for start in range(0, len(samples), PIECE)]


async def honest(port: int, samples: np.ndarray, wait: float = 0.0) -> Outcome:
    """Speak in real time, after a wait, and listen to the end."""
    outcome, words = Outcome(), []
    loop = asyncio.get_running_loop()
    with contextlib.suppress(ConnectionClosed, InvalidStatus, OSError, TimeoutError):
        async with open_stream(port) as stream:
            await stream.recv()
            began = loop.time() + wait
            sending = asyncio.create_task(_speak(stream, cut(samples), began))
            async for message in stream:
                now, found = loop.time(), json.loads(message)
                if found["type"] != "text" or found["system"] != 0:
                    continue
                words += [word["text"] for word in found["stable"]]
                # The message that held the last sample of the chunk was complete at this moment.
                pieces = -(-round(found["seconds"] * RATE) // PIECE)
                outcome.delays.append(now - began - pieces * PIECE / RATE)
                if found["final"]:
                    outcome.text = " ".join(words)
            await sending
    return outcome


async def _speak(stream: ClientConnection, pieces: list[bytes], began: float) -> None:
    """Send each piece at the moment at which its last sample is spoken, then the end."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(ConnectionClosed):
        for number, piece in enumerate(pieces, start=1):
            await asyncio.sleep(began + number * PIECE / RATE - loop.time())
            await stream.send(piece)
        await stream.send(END)


async def at_once(port: int, samples: np.ndarray, ahead: float) -> str | None:
    """Speak as fast as the server takes it, never more than `ahead` seconds ahead of it; gives the final text."""
    words: list[str] = []
    used, final = 0.0, False
    async with open_stream(port) as stream:
        await stream.recv()
        for number, piece in enumerate(cut(samples), start=1):
            while number * PIECE / RATE - used > ahead:
                used, _ = _heard(await stream.recv(), words)
            await stream.send(piece)
        await stream.send(END)
        async for message in stream:
            used, final = _heard(message, words)
    return " ".join(words) if final else None


async def endless(port: int, samples: np.ndarray, ahead: float, times: int, after_each: Callable[[], None]) -> None:
    """Say the same again and again as fast as the server takes it; `after_each` is called once each is recognised."""
    pieces = cut(samples)
    used, words = 0.0, []
    async with open_stream(port) as stream:
        await stream.recv()
        for number in range(1, times * len(pieces) + 1):
            while number * PIECE / RATE - used > ahead:
                used, _ = _heard(await stream.recv(), words)
            await stream.send(pieces[(number - 1) % len(pieces)])
            words.clear()
            if number % len(pieces) == 0:
                after_each()


def _heard(message: str | bytes, words: list[str]) -> tuple[float, bool]:
    found = json.loads(message)
    words += [word["text"] for word in found["stable"]]
    return found["seconds"], found["final"]


async def dropped(port: int, samples: np.ndarray) -> str:
    """Vanish in the middle of a sentence."""
    async with open_stream(port) as stream:
        for piece in cut(samples)[:10]:
            await stream.send(piece)
        stream.transport.abort()
    return "gone"


async def returning(port: int, samples: np.ndarray, ahead: float, seconds: float) -> str:
    """Come, send all that a stream may, vanish, and come again at once; so for some seconds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    pieces = cut(np.resize(samples, int(ahead * RATE)))
    while loop.time() < end:
        with contextlib.suppress(ConnectionClosed, InvalidStatus, OSError, TimeoutError):
            async with open_stream(port) as stream:
                for piece in pieces:
                    await stream.send(piece)
                stream.transport.abort()
    return "gone"


async def half_open(port: int, samples: np.ndarray, seconds: float) -> str:
    """Begin, then neither say nor read nor answer anything."""
    with socket.create_connection(("127.0.0.1", port)) as raw:
        raw.sendall(handshake(port))
        raw.sendall(masked(0x82, cut(samples)[0]))
        await asyncio.sleep(seconds)
    return "silent"


async def slow(port: int, samples: np.ndarray, seconds: float) -> str:
    """Speak in real time, and read nothing of what is answered."""
    async with open_stream(port, "?readings=1", max_queue=1) as stream:
        stream.transport.pause_reading()
        began = asyncio.get_running_loop().time()
        pieces = cut(samples)
        count = int(seconds * RATE / PIECE)
        await _speak(stream, [pieces[number % len(pieces)] for number in range(count)], began)
        stream.transport.abort()
    return "deaf"


async def bursting(port: int, samples: np.ndarray, seconds: float) -> str:
    """Send many seconds of audio at once; gives why that was refused."""
    pieces = cut(samples)
    async with open_stream(port) as stream:
        with contextlib.suppress(ConnectionClosed):
            for number in range(int(seconds * RATE / PIECE)):
                await stream.send(pieces[number % len(pieces)])
        return await reason(stream)


async def garbage(port: int, seed: int) -> str:
    """Send what makes no sense, as frames or as bytes; gives how that ended."""
    randomness = random.Random(seed)
    if seed % 2:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(randomness.randbytes(4000))
        with contextlib.suppress(ConnectionError, asyncio.TimeoutError):
            await asyncio.wait_for(reader.read(), 20)
        writer.close()
        return "bytes"
    async with open_stream(port) as stream:
        await stream.recv()
        kind = (0x81, 0x82, 0x83, 0xC2)[seed // 2 % 4]
        stream.transport.write(masked(kind, randomness.randbytes(301)))
        return await reason(stream)


async def giant(port: int) -> int:
    """Begin a message of 1 GB and go on sending it until the server has had enough; gives its closing code."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(handshake(port))
    await reader.readuntil(b"\r\n\r\n")
    answer = asyncio.create_task(_closing_code(reader))
    writer.write(struct.pack(">BBQ", 0x82, 0x80 | 127, 1 << 30) + b"\0\0\0\0")
    with contextlib.suppress(ConnectionError):
        for _ in range(1024):
            if answer.done():
                break
            writer.write(b"\0" * (1 << 20))
            await writer.drain()
    code = await asyncio.wait_for(answer, 60)
    writer.transport.abort()
    return code


async def _closing_code(reader: asyncio.StreamReader) -> int:
    """Read the server's frames, all of them short or of 16 bits of length, up to the one that closes."""
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            kind, size = await reader.readexactly(2)
            if size == 126:
                (size,) = struct.unpack(">H", await reader.readexactly(2))
            payload = await reader.readexactly(size)
            if kind == 0x88:
                return struct.unpack(">H", payload[:2])[0]
    return 0


async def foreign(port: int) -> int:
    """A page of another origin; gives the status of the answer."""
    try:
        async with open_stream(port, origin="https://example.org"):
            return 101
    except InvalidStatus as error:
        return error.response.status_code


async def crowd(port: int, count: int) -> dict[str, int]:
    """So many connections at once that say nothing; gives how many were turned away at once, and how many cut later."""

    async def one() -> str:
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), PATIENCE)
        except (OSError, TimeoutError):
            return "not let in"
        try:
            answer = await asyncio.wait_for(reader.read(12), PATIENCE)
        except ConnectionError:
            answer = TURNED_AWAY
        except TimeoutError:
            # The kernel's queue was full: this side believes in a connection that the other side never had.
            return "not let in"
        finally:
            writer.close()
        if answer == TURNED_AWAY:
            return "turned away"
        return "served" if answer else "cut off"

    results = await asyncio.gather(*(one() for _ in range(count)))
    return {kind: results.count(kind) for kind in sorted(set(results))}


async def reason(stream: ClientConnection) -> str:
    """Why the server ends a stream: the reason that it says, or its closing code."""
    found = ""
    with contextlib.suppress(ConnectionClosed):
        async for message in stream:
            content = json.loads(message)
            found = content.get("reason", found)
    return found or str(stream.close_code)


def handshake(port: int) -> bytes:
    """What opens a stream."""
    lines = [
        "GET /stream HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec-WebSocket-Version: 13",
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def masked(head: int, payload: bytes) -> bytes:
    """A WebSocket's frame of a client, of up to 65535 bytes, with a mask of zeros."""
    return struct.pack(">BBH", head, 0x80 | 126, len(payload)) + b"\0\0\0\0" + payload
