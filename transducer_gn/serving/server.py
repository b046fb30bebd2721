"""The process that clients talk to: the page, the streams, the limits, and a clean end."""

import asyncio
import contextlib
import json
import logging
import resource
import signal
from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import parse_qs

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response

from transducer_gn.common.errors import UserError, require
from transducer_gn.common.units import SAMPLING_RATE
from transducer_gn.config import ServingConfig
from transducer_gn.serving.access import Gate, allowed_origins, refused_headers
from transducer_gn.serving.outbox import Refusal
from transducer_gn.serving.pages import Pages, Sentence, answer
from transducer_gn.serving.recogniser_process import RecogniserProcess
from transducer_gn.serving.session import Session, refuse
from transducer_gn.serving.worker import WorkerConfig

PROTOCOL = 1
STREAM_PATH = "/stream"
# Seconds to say what is wanted, and seconds to answer to a closing.
OPEN_SECONDS = 5.0
CLOSE_SECONDS = 5.0
# Seconds for streams to tell their clients that they are ended.
TELL_SECONDS = 1.0
# Connections that wait to be let in, or turned away.
BACKLOG = 512
# Files besides connections: standard ones, libraries, the socket to the recogniser.
OTHER_FILES = 64
ENDING = "the server is ending and takes no new streams"


class LiveServer:
    """A server on its way from start to end.

    Args:
        config: where to listen, and limits
        worker: what to recognise with
        sentences: that the page offers
        announce: is given the address once it can be used
    """

    def __init__(
        self, config: ServingConfig, worker: WorkerConfig, sentences: list[Sentence], announce: Callable[[str], None]
    ) -> None:
        self._config = config
        self._recogniser = RecogniserProcess(worker)
        self._pages = Pages(sentences)
        self._announce = announce
        self._gate = Gate(config.connections)
        self._sessions: set[Session] = set()
        self._asked_to_end = asyncio.Event()
        self._origins: set[str] = set()

    async def run(self) -> None:
        """Serve until a signal asks to end; UserError if it cannot begin, or if the recogniser is lost."""
        allow_files(self._config.connections + OTHER_FILES)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._asked_to_end.set)
        try:
            starting = asyncio.create_task(self._recogniser.start())
            await first_of(starting, asyncio.create_task(self._asked_to_end.wait()))
            if starting.done():
                await starting
                await self._serve()
            else:
                starting.cancel()
                await asyncio.wait([starting])
        finally:
            await self._recogniser.stop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def _serve(self) -> None:
        try:
            server = await self._listen()
        except OSError as error:
            place = f"{self._config.host}:{self._config.port}"
            raise UserError(f"cannot listen on {place} ({error.strerror}); choose --host and --port") from error
        self._pages.add_json("/systems.json", self._recogniser.systems)
        async with server:
            port = next(iter(server.sockets)).getsockname()[1]
            self._origins = allowed_origins(self._config, port)
            host = f"[{self._config.host}]" if ":" in self._config.host else self._config.host
            self._announce(f"http://{host}:{port}/")
            await first_of(asyncio.create_task(self._asked_to_end.wait()), self._recogniser.ended)
            if not self._recogniser.ended.done():
                await self._drain()
            elif not self._asked_to_end.is_set():
                await self._end_streams(Refusal("failed", "the recogniser has ended", 1011))
                raise UserError("the recogniser's process ended; see what it wrote above, and start the server again")

    async def _listen(self) -> Server:
        """Open the port."""
        # Handshakes that fail are their clients' business.
        logger = logging.getLogger("websockets.server")
        logger.setLevel(logging.CRITICAL)
        return await serve(
            self._stream,
            self._config.host,
            self._config.port,
            process_request=self._request,
            create_connection=self._gate.connection_class(),
            compression=None,
            max_size=self._config.message_bytes,
            open_timeout=OPEN_SECONDS,
            close_timeout=CLOSE_SECONDS,
            ping_interval=self._config.idle,
            ping_timeout=self._config.idle,
            server_header=None,
            backlog=BACKLOG,
            logger=logger,
        )

    def _request(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer requests for pages; None lets a stream begin."""
        problem = refused_headers(request.headers, self._origins)
        if problem is not None:
            return answer(HTTPStatus.FORBIDDEN, f"{problem}\n".encode())
        if self._asked_to_end.is_set():
            return answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{ENDING}\n".encode())
        path = request.path.partition("?")[0]
        if path != STREAM_PATH:
            return self._pages.get(path)
        if "Upgrade" not in request.headers:
            return answer(HTTPStatus.UPGRADE_REQUIRED, b"streams are WebSockets; see docs/live.md\n")
        return None

    async def _stream(self, connection: ServerConnection) -> None:
        """One client from beginning to end."""
        limits = self._config
        if self._asked_to_end.is_set():
            await refuse(connection, Refusal("ending", ENDING, 1001), limits.idle)
            return
        if len(self._sessions) >= limits.streams:
            sentence = f"all {limits.streams} streams of the server are taken; try again later"
            await refuse(connection, Refusal("full", sentence, 1013), limits.idle)
            return
        assert connection.request is not None
        query = parse_qs(connection.request.path.partition("?")[2])
        session = Session(connection, self._recogniser, limits, query.get("readings") == ["1"])
        self._sessions.add(session)
        try:
            refusal = await session.run(json.dumps(self._greeting()))
        finally:
            # Before the closing, for which a client may take its time: its place is free.
            self._sessions.discard(session)
        if refusal is not None:
            await refuse(connection, refusal, limits.idle)

    def _greeting(self) -> dict[str, object]:
        limits = {name: getattr(self._config, name) for name in ("message_bytes", "ahead", "idle")}
        return {
            "type": "ready",
            "protocol": PROTOCOL,
            "sampling_rate": SAMPLING_RATE,
            "systems": self._recogniser.systems,
            "limits": limits,
        }

    async def _drain(self) -> None:
        """Let streams finish, as long as they may take."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._config.drain
        again = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, again.set)
        if self._sessions:
            logging.getLogger(__name__).warning("ending once %d streams have finished", len(self._sessions))
        while self._sessions and loop.time() < end and not (again.is_set() or self._recogniser.ended.done()):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(again.wait(), 0.05)
        await self._end_streams(
            Refusal("ending", "the server has ended; it waits no longer for the stream to finish", 1001)
        )

    async def _end_streams(self, refusal: Refusal) -> None:
        """Tell all streams why they end, and give them a moment to say it to their clients."""
        for session in list(self._sessions):
            session.refuse(refusal)
        end = asyncio.get_running_loop().time() + TELL_SECONDS
        while self._sessions and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.01)


async def first_of(*tasks: asyncio.Task[object]) -> None:
    """Wait until one of the tasks is done."""
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


def allow_files(wanted: int) -> None:
    """Raise the number of files that the process may have open; UserError if it may not be raised as far."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        unlimited = hard == resource.RLIM_INFINITY
        require(unlimited or wanted <= hard, "--connections", f"this machine allows {hard - OTHER_FILES} (ulimit -n)")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def serve_live(
    config: ServingConfig, worker: WorkerConfig, sentences: list[Sentence], announce: Callable[[str], None] = print
) -> None:
    """Run a server until a signal ends it."""

    async def run() -> None:
        await LiveServer(config, worker, sentences, announce).run()

    asyncio.run(run())
