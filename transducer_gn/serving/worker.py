"""The process that recognises: `python -m transducer_gn.serving.worker DESCRIPTOR JSON`, started by the server.

It reads frames from a socket that it inherits, recognises, and answers there. It ends when the socket is closed, so it
never outlives the server, whatever became of that.
"""

import json
import select
import signal
import socket
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transducer_gn.common.errors import UserError, require
from transducer_gn.config import RecognitionConfig
from transducer_gn.serving.frames import Frame, FrameReader, Kind

# Bytes taken from the socket before the next round: more wait there.
MOST_BYTES = 1 << 22


@dataclass(frozen=True)
class WorkerConfig:
    """What to recognise with.

    Attributes:
        checkpoints: files, or experiment folders, of which the best epoch is taken
        recognition: how to recognise
        threads: processor threads
        ahead: seconds that a stream may be ahead of the recogniser, which must be more than a chunk
    """

    checkpoints: list[str]
    recognition: RecognitionConfig
    threads: int
    ahead: float

    def to_json(self) -> str:
        """As an argument of the process."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "WorkerConfig":
        """From an argument of the process."""
        content: dict[str, Any] = json.loads(text)
        return WorkerConfig(**content | {"recognition": RecognitionConfig(**content["recognition"])})


def serve_socket(connection: socket.socket, config: WorkerConfig) -> None:
    """Load the systems, then recognise until the socket is closed."""
    import torch

    from transducer_gn.recognition.system import load
    from transducer_gn.serving.engine import Engine

    def send(frame: Frame) -> None:
        connection.sendall(frame.encode())

    try:
        torch.set_num_threads(config.threads)
        systems = [load(path) for path in config.checkpoints]
        recognisers = [system.recogniser(config.recognition) for system in systems]
        about = []
        for path, system, recogniser in zip(config.checkpoints, systems, recognisers, strict=True):
            chunk = recogniser.chunk_seconds
            wanted = recogniser.encoder.framing.seconds_heard(recogniser.encoder.size)
            require(
                config.ahead > wanted, "--ahead", f"must be more than the {wanted:.2f} s that a chunk of {path} takes"
            )
            name = system_name(Path(path), system.name)
            about.append({"name": name, "alpha": system.alpha, "chunk_seconds": chunk, "seconds_needed": wanted})
    except UserError as error:
        send(Frame(Kind.FAILED, payload=str(error).encode()))
        return
    send(Frame(Kind.READY, payload=json.dumps(about).encode()))
    engine = Engine(recognisers, send)
    reader = FrameReader()
    while True:
        taken = 0
        while taken < MOST_BYTES and select.select([connection], [], [], 0 if taken or engine.busy else None)[0]:
            data = connection.recv(1 << 18)
            if not data:
                return
            taken += len(data)
            for frame in reader.feed(data):
                engine.handle(frame)
        engine.round()


def system_name(path: Path, parameters: str) -> str:
    """What people call a system: its experiment and its parameters."""
    folder = path.resolve().name if path.is_dir() else path.resolve().parent.name
    return f"{folder}/{parameters}"


def main() -> None:
    # Who asks the server to end, from a terminal or by its process group, does not mean this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with socket.socket(fileno=int(sys.argv[1])) as connection:
            serve_socket(connection, WorkerConfig.from_json(sys.argv[2]))
    except (BrokenPipeError, ConnectionResetError):
        pass


if __name__ == "__main__":
    main()
