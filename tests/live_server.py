"""A live server in a process of its own, as a user starts it, and simple clients for it."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from websockets.sync.client import ClientConnection, connect

ROOT = Path(__file__).resolve().parents[1]
CONSOLE = "from transducer_gn.commands.console import main; main()"
END = json.dumps({"type": "end"})


class LiveServer:
    """A server that runs.

    Attributes:
        process: its process
        address: of its page, such as http://127.0.0.1:8765/
    """

    def __init__(self, process: subprocess.Popen, address: str) -> None:
        self.process = process
        self.address = address

    @property
    def port(self) -> int:
        return int(self.address.rstrip("/").rpartition(":")[2])

    def connect(self, query: str = "", **options: object) -> ClientConnection:
        """A stream that is open but has not been greeted yet."""
        return connect(f"ws://127.0.0.1:{self.port}/stream{query}", compression=None, **options)

    def end(self) -> int:
        """Ask it to end; gives its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@contextmanager
def live_server(*arguments: str | Path) -> Iterator[LiveServer]:
    """A server with these arguments; it must end well."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", CONSOLE, "serve", "--port", "0", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        found = re.search(r"http\S+", process.stdout.readline())
        assert found, "the server did not begin"
        server = LiveServer(process, found[0])
        try:
            yield server
        finally:
            code = server.end()
        assert code == 0


def pieces(samples: np.ndarray, size: int = 1280) -> Iterator[bytes]:
    """Samples as messages."""
    for start in range(0, len(samples), size):
        yield samples[start : start + size].astype("<i2").tobytes()


def send_all(stream: ClientConnection, samples: np.ndarray, size: int = 1280) -> None:
    """Send audio and its end."""
    for piece in pieces(samples, size):
        stream.send(piece)
    stream.send(END)


def texts(messages: list[dict], system: int = 0) -> list[str]:
    """The text after each message of a system."""
    settled: list[str] = []
    found = []
    for message in messages:
        if message["type"] == "text" and message["system"] == system:
            settled += [word["text"] for word in message["stable"]]
            found.append(" ".join(settled + [word["text"] for word in message["open"]]))
    return found


def exchange(stream: ClientConnection, samples: np.ndarray, size: int = 1280) -> list[dict]:
    """Send audio and its end, and take all messages up to the closing."""
    send_all(stream, samples, size)
    return [json.loads(message) for message in stream]
