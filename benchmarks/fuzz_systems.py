"""Readers of trained systems, as targets of the fuzzer: tensors, graphs, indices."""

import json
import zipfile
from collections.abc import Callable
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fuzz_files import of_file
from fuzzing import Target
from small_moonshine import exported, model_message
from small_systems import small_tokenizer, write_checkpoint

from transducer_gn.config import RecognitionConfig
from transducer_gn.data.index import DURATIONS
from transducer_gn.data.shar import SharExport
from transducer_gn.data.tokenizer import Tokenizer
from transducer_gn.export.write import export_system
from transducer_gn.model.moonshine import MoonshineEncoder, MoonshineShape
from transducer_gn.model.moonshine_file import encoder_of_graph
from transducer_gn.model.onnx_file import read_graph
from transducer_gn.recognition.checkpoint import load_checkpoint
from transducer_gn.recognition.stored_front_end import read_parameters
from transducer_gn.recognition.system import load
from transducer_gn.recognition.tensor_files import write_tensors
from transducer_gn.runtime.layout import read_layout
from transducer_gn.runtime.system import load as load_exported

TENSOR = "tensor"
# More than any tensor of the good checkpoint has in a dimension, and in all.
LARGEST_SIZE, LARGEST_TENSOR = 4096, 1 << 17


def read_both(path: Path) -> None:
    """A checkpoint as training looks at it, and as it reads it."""
    load_checkpoint(path)
    load_checkpoint(path, mmap=True)


def small_checkpoint(folder: Path) -> Path:
    """A checkpoint of a tiny system."""
    folder.mkdir(parents=True, exist_ok=True)
    write_checkpoint(folder / "epoch-1.pt")
    return folder / "epoch-1.pt"


def smallest_checkpoint(folder: Path) -> Path:
    """One that holds just enough to be one, which makes for more inputs."""
    path = small_checkpoint(folder)
    content = torch.load(path, weights_only=True)
    few = {name: content["model"][name] for name in list(content["model"])[:3]}
    write_tensors(content | {"model": few, "average": {"start": 0, "count": 0, "parameters": few}}, path)
    return path


def checkpoint_bytes(folder: Path) -> Target:
    """A checkpoint whose bytes are changed."""
    path = smallest_checkpoint(folder)
    return Target(of_file(path, lambda: read_both(path)), [path.read_bytes()])


def checkpoint_pickle(folder: Path) -> Target:
    """A checkpoint whose description of tensors and values is changed, with checksums that fit."""
    path = smallest_checkpoint(folder)
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


@lru_cache(1000)
def zeros(shape: tuple[int, ...], kind: torch.dtype) -> torch.Tensor:
    """A tensor [*shape] of nothing, the same one for all that want it: a file holds it once, and is read sooner."""
    return torch.zeros(shape, dtype=kind)


def from_json(value: Any, tokens: torch.Tensor) -> Any:
    """The way back, with zeros in all tensors but the token model; shapes that are none stay as they are."""
    if isinstance(value, dict) and set(value) == {TENSOR, "type"}:
        try:
            shape = tuple(min(max(int(size), 0), LARGEST_SIZE) for size in value[TENSOR])
            if prod(shape) > LARGEST_TENSOR:
                shape = tuple(min(size, 64) for size in shape)
            made = zeros(shape, getattr(torch, value["type"]))
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
    seed = model_message(*exported(MoonshineEncoder(shape)))
    words = [b"MatMul", b"Conv", b"Add", b"/layers.0/", b"/layers.1/mlp/fc1/MatMul", b"/conv1/Conv", b"\x08\x04"]
    path = folder / "a.onnx"
    return Target(of_file(path, lambda: encoder_of_graph(read_graph(path), shape, "a.onnx")), [seed], words=words)


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


TARGETS: dict[str, Callable[[Path], Target]] = {
    "checkpoint-bytes": checkpoint_bytes,
    "checkpoint-pickle": checkpoint_pickle,
    "checkpoint-values": checkpoint_values,
    "front-end-parameters": front_end_parameters,
    "token-model": token_model,
    "shar-index": shar_index,
    "onnx": onnx,
    "metadata": metadata,
    "exported-system": exported_system,
}
