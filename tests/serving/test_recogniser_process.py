"""Invariant: what is on its way to the recogniser is limited, whoever sends it and whether or not they are still there;
and nothing of it is lost.
"""

import asyncio
import json
import socket

import pytest

from transducer_gn.config import EVERYDAY
from transducer_gn.serving.frames import Frame, FrameReader, Kind
from transducer_gn.serving.recogniser_process import MOST_WAITING, RecogniserProcess
from transducer_gn.serving.worker import WorkerConfig

SYSTEMS = [
    {"name": "a", "chunk_seconds": 0.64, "seconds_needed": 0.68},
    {"name": "b", "chunk_seconds": 0.5, "seconds_needed": 1.5},
]
MESSAGE = b"\1\0" * 30000


class Ended:
    """A process that has nothing to do."""

    async def wait(self) -> int:
        return 0

    def kill(self) -> None:
        raise AssertionError("it has ended by itself")


async def started(monkeypatch: pytest.MonkeyPatch) -> tuple[RecogniserProcess, socket.socket]:
    """A process whose side of the socket is the test's."""
    others: list[socket.socket] = []

    async def start(*command: str, pass_fds: list[int]) -> Ended:
        others.append(socket.socket(fileno=socket.dup(pass_fds[0])))
        others[0].sendall(Frame(Kind.READY, payload=json.dumps(SYSTEMS).encode()).encode())
        return Ended()

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    process = RecogniserProcess(WorkerConfig([], EVERYDAY, 1, 20.0))
    await process.start()
    return process, others[0]


def test_streams_wait_while_the_recogniser_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        process, other = await started(monkeypatch)
        assert process.window == 1.5 + 0.64
        assert [sorted(system) for system in process.systems] == [["chunk_seconds", "name"]] * 2
        number, sent, waiting = 0, 0, set()
        while not waiting and sent < 10 * MOST_WAITING:
            # Each stream sends one message and goes: no limit of its own is reached.
            number = process.open(lambda frame: None, readings=False)
            process.audio(number, 0.5, MESSAGE)
            sent += len(MESSAGE)
            _, waiting = await asyncio.wait([asyncio.create_task(process.drained())], timeout=0.3)
            process.close(number)
        assert MOST_WAITING < sent < 2 * MOST_WAITING
        other.setblocking(False)
        reader, frames = FrameReader(), []
        while not all(task.done() for task in waiting) or len(frames) < 3 * number:
            await asyncio.sleep(0)
            try:
                frames += reader.feed(other.recv(1 << 20))
            except BlockingIOError:
                continue
        assert [frame.payload for frame in frames if frame.kind is Kind.AUDIO] == [MESSAGE] * number
        other.close()
        await process.ended
        # Nobody is there any more to wait for.
        process.audio(number, 0.5, MESSAGE)
        await process.drained()
        await process.stop()

    asyncio.run(run())
