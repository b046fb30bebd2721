"""What clients send to the live server, as targets of the fuzzer: requests, and messages of a stream."""

import asyncio
import json
import selectors
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fuzz_systems import small_checkpoint
from fuzzing import Target
from websockets.server import ServerProtocol

from transducer_gn.config import RecognitionConfig, ServingConfig
from transducer_gn.recognition.system import load
from transducer_gn.serving.engine import Engine
from transducer_gn.serving.frames import Frame, FrameReader, Kind
from transducer_gn.serving.outbox import Refusal
from transducer_gn.serving.server import LiveServer
from transducer_gn.serving.session import Session
from transducer_gn.serving.worker import WorkerConfig

READY = '{"type": "ready"}'


class Impatient(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    """Waits for nothing: what would have been waited is skipped."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped = 0.0

    def select(self, timeout: float | None = None) -> Any:
        """What is ready now."""
        found = super().select(0)
        if not found and timeout is None:
            raise RuntimeError("nothing will ever happen again")
        if not found:
            self.skipped += timeout or 0.0
        return found


class SimulatedTime(asyncio.SelectorEventLoop):
    """A loop in which time passes when nothing else happens; it keeps errors that nobody waits for."""

    def __init__(self) -> None:
        self._impatient = Impatient()
        self.errors: list[BaseException] = []
        super().__init__(self._impatient)
        self.set_exception_handler(lambda loop, context: self.errors.append(
            context.get("exception") or RuntimeError(context["message"])))  # fmt: skip

    def time(self) -> float:
        """Seconds, with those that were skipped."""
        return super().time() + self._impatient.skipped


class HeardConnection:
    """A client's side of a stream, as a session sees it."""

    def __init__(self, messages: list[bytes | str]) -> None:
        self._messages = messages
        self.sent: list[dict[str, Any]] = []

    async def recv(self) -> bytes | str:
        """The next message; none comes after the last."""
        await asyncio.sleep(0)
        if not self._messages:
            await asyncio.sleep(3600)
        return self._messages.pop(0)

    async def send(self, text: str) -> None:
        """Take what the client would be sent."""
        self.sent.append(json.loads(text))

    async def wait_closed(self) -> None:
        """Until the client has gone, which it never does by itself."""
        await asyncio.sleep(3600)


class RecogniserHere:
    """The recogniser's process, without the process."""

    systems = ({"name": "a"},)
    window = 0.5

    def __init__(self, recognisers: list[Any]) -> None:
        self._listener: Callable[[Frame], None] | None = None
        self._engine = Engine(recognisers, self._hear)
        self._reader = FrameReader()
        self._taken: list[bytes] = []

    def _hear(self, frame: Frame) -> None:
        for heard in FrameReader().feed(frame.encode()):
            if self._listener is not None:
                self._listener(heard)

    def open(self, listener: Callable[[Frame], None], readings: bool) -> int:
        """Begin the stream."""
        self._listener = listener
        self._take(Frame(Kind.OPEN, 1, payload=b"1" if readings else b"0"))
        return 1

    def audio(self, stream: int, came: float, samples: bytes) -> None:
        """Take audio."""
        self._take(Frame(Kind.AUDIO, stream, came, samples))

    async def drained(self) -> None:
        """There is always room."""

    def end(self, stream: int, came: float) -> None:
        """Take the end."""
        self._take(Frame(Kind.END, stream, came))

    def close(self, stream: int) -> None:
        """Forget the stream."""
        self._listener = None
        self._take(Frame(Kind.CLOSE, stream))

    def _take(self, frame: Frame) -> None:
        """Work comes later, as from another process."""
        self._taken.append(frame.encode())
        asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        while self._taken:
            for heard in self._reader.feed(self._taken.pop(0)):
                self._engine.handle(heard)
            while self._engine.busy:
                self._engine.round()


def messages(folder: Path) -> Target:
    """Messages of a client: lines of text, and audio as numbers of samples."""
    system = load(small_checkpoint(folder))
    recogniser = system.recogniser(RecognitionConfig(beam=2))
    limits = ServingConfig(ahead=3.0, idle=20.0)

    async def talk(said: list[bytes | str]) -> Refusal | None:
        session = Session(HeardConnection(said), RecogniserHere([recogniser]), limits, True)  # type: ignore[arg-type]
        return await asyncio.wait_for(session.run(READY), 300)

    def read(content: bytes) -> None:
        lines = content.split(b"\n")[:20]
        said = [line[1:] * 40 if line[:1] == b"\x00" else line.decode(errors="replace") for line in lines]
        with asyncio.Runner(loop_factory=SimulatedTime) as runner:
            refusal = runner.run(talk(said))
            errors = runner.get_loop().errors  # type: ignore[attr-defined]
        assert refusal is None or refusal.sentence
        assert not errors, errors

    seeds = [b"\x00" + bytes(range(11, 211)) + b'\n{"type": "end"}', b'{"type": "end"}', b"\x00ab\nhello"]
    return Target(read, seeds, words=[b'\n{"type": "end"}', b"\n\x00", b"\n{}", b"\n[", b"\n1e400"])


def requests(folder: Path) -> Target:
    """The bytes with which a client asks for a page or a stream."""
    limits = ServingConfig()
    server = LiveServer(limits, WorkerConfig([], RecognitionConfig(), 1, 3.0), [], print)
    server._origins = {"http://127.0.0.1:8765"}

    def read(content: bytes) -> None:
        protocol = ServerProtocol()
        protocol.receive_data(content)
        for request in protocol.events_received():
            response = server._request(None, request)  # type: ignore[arg-type]
            assert response is None or response.status_code >= 200

    page = b"GET /%s HTTP/1.1\r\nHost: 127.0.0.1:8765\r\nOrigin: http://127.0.0.1:8765\r\n%s\r\n"
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    key = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    seeds = [page % (b"", b""), page % (b"stream?readings=1", upgrade + key), page % (b"/[x", b"")]
    return Target(read, seeds, words=[b"\r\n", b"//[", b"Host: ", b"Origin: ", b"http://", b"?readings=1", b"\r\n\r\n"])


TARGETS: dict[str, Callable[[Path], Target]] = {"messages": messages, "requests": requests}
