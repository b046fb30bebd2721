"""Readers of trained systems and of what clients send, as targets of the fuzzer: tensors, graphs, sockets."""

import asyncio
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fuzz_files import of_file
from fuzzing import Target
from small_moonshine import model_message, node_message, tensor_message
from small_systems import small_tokenizer, write_checkpoint
from websockets.server import ServerProtocol

from transducer_gn.config import RecognitionConfig, ServingConfig
from transducer_gn.data.index import DURATIONS, OFFSETS, ManifestIndex, write_index
from transducer_gn.data.shar import SharExport
from transducer_gn.data.tokenizer import Tokenizer
from transducer_gn.export.write import export_system
from transducer_gn.model.moonshine import MoonshineShape
from transducer_gn.model.moonshine_file import encoder_of_graph
from transducer_gn.model.onnx_file import read_graph
from transducer_gn.recognition.checkpoint import load_checkpoint
from transducer_gn.recognition.stored_front_end import read_parameters
from transducer_gn.recognition.system import load
from transducer_gn.recognition.tensor_files import write_tensors
from transducer_gn.runtime.layout import read_layout
from transducer_gn.runtime.system import load as load_exported
from transducer_gn.serving.engine import Engine
from transducer_gn.serving.frames import Frame, FrameReader, Kind
from transducer_gn.serving.outbox import Refusal
from transducer_gn.serving.server import LiveServer
from transducer_gn.serving.session import Session
from transducer_gn.serving.worker import WorkerConfig

TENSOR = "tensor"


def read_both(path: Path) -> None:
    """A checkpoint as training looks at it, and as it reads it."""
    load_checkpoint(path)
    load_checkpoint(path, mmap=True)


def small_checkpoint(folder: Path) -> Path:
    """A checkpoint of a tiny system."""
    folder.mkdir(parents=True, exist_ok=True)
    write_checkpoint(folder / "epoch-1.pt")
    return folder / "epoch-1.pt"


def checkpoint_bytes(folder: Path) -> Target:
    """A checkpoint whose bytes are changed; it holds just enough to be one."""
    path = small_checkpoint(folder)
    content = torch.load(path, weights_only=True)
    few = {name: content["model"][name] for name in list(content["model"])[:3]}
    write_tensors(content | {"model": few, "average": {"start": 0, "count": 0, "parameters": few}}, path)
    return Target(of_file(path, lambda: read_both(path)), [path.read_bytes()])


def checkpoint_pickle(folder: Path) -> Target:
    """A checkpoint whose description of tensors and values is changed, with checksums that fit."""
    path = small_checkpoint(folder)
    with zipfile.ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    (description,) = (name for name in records if name.endswith("data.pkl"))

    def read(content: bytes) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            for name, record in (records | {description: content}).items():
                archive.writestr(name, record)
        read_both(path)

    words = [b"ctorch\nFloatStorage\n", b"cposix\nsystem\n", b"(U\x02idtR", b"q\x00", b"r\xff\xff\xff\x7f",
             b"K\x05",
             b"\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x01", b"ctorch._utils\n_rebuild_tensor_v2\n", b"Q"]  # fmt: skip
    return Target(read, [records[description]], words=words)


def as_json(value: Any) -> Any:
    """Tensors and plain values as JSON: a tensor is its shape and type."""
    if isinstance(value, torch.Tensor):
        return {TENSOR: list(value.shape), "type": str(value.dtype).removeprefix("torch.")}
    if isinstance(value, dict):
        return {name: as_json(item) for name, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, list | tuple) else value


def from_json(value: Any, tokens: torch.Tensor) -> Any:
    """The way back, with zeros in all tensors but the token model; shapes that are none stay as they are."""
    if isinstance(value, dict) and set(value) == {TENSOR, "type"}:
        try:
            shape = [min(max(int(size), 0), 64) for size in value[TENSOR]]
            made = torch.zeros(shape, dtype=getattr(torch, value["type"]))
        except (TypeError, ValueError, AttributeError, OverflowError, RuntimeError):
            return value
        return tokens if made.dtype == torch.uint8 else made
    if isinstance(value, dict):
        return {name: from_json(item, tokens) for name, item in value.items()}
    return [from_json(item, tokens) for item in value] if isinstance(value, list) else value


def checkpoint_values(folder: Path) -> Target:
    """A whole checkpoint in which values are changed, loaded as a system."""
    path = small_checkpoint(folder)
    content = torch.load(path, weights_only=True)
    tokens = content["tokenizer"]

    def read(text: bytes) -> None:
        try:
            values = from_json(json.loads(text), tokens)
        except (ValueError, RecursionError):
            return
        path.unlink(missing_ok=True)
        try:
            torch.save(values, path)
        except (RecursionError, OverflowError, UnicodeError):
            return
        load(path)

    return Target(read, [json.dumps(as_json(content)).encode()], is_json=True)


def front_end_parameters(folder: Path) -> Target:
    """front_end.pt."""
    folder.mkdir(parents=True)
    path, module = folder / "front_end.pt", torch.nn.Linear(3, 2)
    write_tensors(module.state_dict(), path)
    seeds = [path.read_bytes()]
    return Target(of_file(path, lambda: read_parameters(module, path)), seeds)  # type: ignore[arg-type]


def token_model(folder: Path) -> Target:
    """A sentencepiece model."""
    folder.mkdir(parents=True)
    path = folder / "tokenizer.model"

    def read() -> None:
        tokenizer = Tokenizer.load(path)
        tokenizer.decode(tokenizer.encode("A WORD"))
        tokenizer.decode(range(tokenizer.vocab_size))
        assert len(tokenizer.entries) == tokenizer.vocab_size

    return Target(of_file(path, read), [small_tokenizer().model], words=[b"<blk>", b"\x0a\x0b", b"\xe2\x96\x81"])


def arrays(folder: Path) -> Target:
    """Arrays of an index; the first byte says which."""
    folder.mkdir(parents=True)
    cut = {"id": "a", "duration": 1.0, "supervisions": [{"text": "A"}]}
    write_index([json.dumps(cut).encode()] * 3, folder)
    paths = [folder / DURATIONS, folder / OFFSETS]
    seeds = [bytes([number]) + path.read_bytes() for number, path in enumerate(paths)]

    def read(content: bytes) -> None:
        for number, path in enumerate(paths):
            path.write_bytes(seeds[number][1:])
        paths[content[0] % 2 if content else 0].write_bytes(content[1:])
        index = ManifestIndex(folder)
        assert len(index) >= 0
        float(index.durations.sum())

    return Target(read, seeds, words=[b"'descr': '<f8'", b"'|O'", b"'shape': (3,)", b"(1000000000000000,)", b"True"])


def shar_index(folder: Path) -> Target:
    """The index of a Shar export."""
    folder.mkdir(parents=True)
    np.save(folder / DURATIONS, np.ones(3))
    read = of_file(folder / "index.json", lambda: len(SharExport(folder)))
    return Target(read, [b'{"format": 2, "shards": [2, 1], "fingerprint": "abc"}'], is_json=True)


def onnx(folder: Path) -> Target:
    """An ONNX file."""
    folder.mkdir(parents=True)
    shape = MoonshineShape("small", dim=4, layers=1, heads=1, feedforward_dim=6, rotated=2)
    weight = np.arange(8, dtype=np.float32).reshape(2, 4)
    seed = model_message(
        [
            node_message("MatMul", "/layers.0/mlp/fc1/MatMul", "x", "w"),
            node_message("Add", "/layer_norm/Add", "y", "b"),
        ],
        [tensor_message("w", weight), tensor_message("b", weight[0])],
    )
    path = folder / "a.onnx"
    return Target(of_file(path, lambda: encoder_of_graph(read_graph(path), shape, "a.onnx")), [seed])


def metadata(folder: Path) -> Target:
    """What an exported system says about itself."""
    system = load(small_checkpoint(folder))
    export_system(system, folder / "export", RecognitionConfig(), int8=False)
    path = folder / "export" / "metadata.json"
    seed = path.read_bytes()
    read = of_file(path, lambda: read_layout(path.parent).framing.features_seen(4))
    return Target(read, [seed], is_json=True)


def exported_system(folder: Path) -> Target:
    """The same, with its graphs, in use."""
    target = metadata(folder)
    path, samples = folder / "export" / "metadata.json", np.zeros(16000, dtype=np.float32)
    return Target(of_file(path, lambda: load_exported(path.parent).transcribe(samples)), target.seeds, is_json=True)


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


class RecogniserHere:
    """The recogniser's process, without the process."""

    systems = ({"name": "a"},)

    def __init__(self, recognisers: list[Any]) -> None:
        self._listener: Callable[[Frame], None] | None = None
        self._engine = Engine(recognisers, self._hear)
        self._reader = FrameReader()

    def _hear(self, frame: Frame) -> None:
        assert self._listener is not None
        for heard in FrameReader().feed(frame.encode()):
            self._listener(heard)

    def open(self, listener: Callable[[Frame], None], readings: bool) -> int:
        """Begin the stream."""
        self._listener = listener
        self._take(Frame(Kind.OPEN, 1, payload=b"1" if readings else b"0"))
        return 1

    def audio(self, stream: int, samples: bytes) -> None:
        """Take audio."""
        self._take(Frame(Kind.AUDIO, stream, 0.0, samples))

    def end(self, stream: int) -> None:
        """Take the end."""
        self._take(Frame(Kind.END, stream, 0.0))

    def close(self, stream: int) -> None:
        """Forget the stream."""
        self._take(Frame(Kind.CLOSE, stream))

    def _take(self, frame: Frame) -> None:
        for heard in self._reader.feed(frame.encode()):
            self._engine.handle(heard)
        while self._engine.busy:
            self._engine.round()


def messages(folder: Path) -> Target:
    """Messages of a client: lines of text, and audio as numbers of samples."""
    system = load(small_checkpoint(folder))
    recogniser = system.recogniser(RecognitionConfig(beam=2))
    limits = ServingConfig(ahead=3.0, idle=0.2)

    async def talk(said: list[bytes | str]) -> Refusal | None:
        session = Session(HeardConnection(said), RecogniserHere([recogniser]), limits, True)  # type: ignore[arg-type]
        return await asyncio.wait_for(session.run(), 30)

    def read(content: bytes) -> None:
        lines = content.split(b"\n")[:20]
        said = [line[1:] * 40 if line[:1] == b"\x00" else line.decode(errors="replace") for line in lines]
        refusal = asyncio.run(talk(said))
        assert refusal is None or refusal.sentence

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


TARGETS: dict[str, Callable[[Path], Target]] = {
    "checkpoint-bytes": checkpoint_bytes,
    "checkpoint-pickle": checkpoint_pickle,
    "checkpoint-values": checkpoint_values,
    "front-end-parameters": front_end_parameters,
    "token-model": token_model,
    "arrays": arrays,
    "shar-index": shar_index,
    "onnx": onnx,
    "metadata": metadata,
    "exported-system": exported_system,
    "messages": messages,
    "requests": requests,
}
