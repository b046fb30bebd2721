"""Moonshine for tests: a small one with random weights, the published one where its file is, and ONNX files."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from transducer_gn.model.moonshine import MoonshineEncoder, MoonshineShape
from transducer_gn.model.moonshine_file import MODULES

SMALL = MoonshineShape("small Moonshine", dim=24, layers=3, heads=4, feedforward_dim=40, rotated=4)
REPOSITORY = Path(__file__).resolve().parent.parent
PUBLISHED_FILE = Path(
    os.environ.get(
        "MOONSHINE_TINY", REPOSITORY.parent / "shared" / "data" / "pretrained" / "moonshine-tiny-encoder.onnx"
    )
)
needs_published_file = pytest.mark.skipif(
    not PUBLISHED_FILE.is_file(), reason=f"Moonshine's file is not at {PUBLISHED_FILE} (set MOONSHINE_TINY)"
)


def small_moonshine(seed: int = 0) -> MoonshineEncoder:
    """An encoder with random weights, large enough that every part of it matters."""
    torch.manual_seed(seed)
    encoder = MoonshineEncoder(SMALL).eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return encoder


def audio(*lengths: int, seed: int = 0) -> list[Tensor]:
    """Noise [n] of each of the lengths that becomes louder and moves off zero, so that statistics differ over time."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(n, generator=generator) * torch.linspace(0.05, 0.5, n) + torch.linspace(0, 0.3, n) for n in lengths
    ]


def batch(utterances: list[Tensor], padding: float = 0.0) -> tuple[Tensor, Tensor]:
    """Utterances [B, N] with their lengths [B]."""
    padded = pad_sequence(utterances, batch_first=True, padding_value=padding)
    return padded, torch.tensor([len(utterance) for utterance in utterances])


def varint(value: int) -> bytes:
    """An integer as protocol buffers write it."""
    rest, low = value >> 7, value & 127
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def message(*fields: tuple[int, int | str | bytes]) -> bytes:
    """A protocol-buffer message of numbered values."""
    result = b""
    for number, value in fields:
        if isinstance(value, int):
            result += varint(number << 3) + varint(value)
        else:
            content = value.encode() if isinstance(value, str) else value
            result += varint(number << 3 | 2) + varint(len(content)) + content
    return result


def tensor_message(name: str, values: np.ndarray, kind: int = 1) -> bytes:
    """An initialiser as PyTorch's exporter writes it."""
    return message(*((1, size) for size in values.shape), (2, kind), (8, name), (9, values.tobytes()))


def model_message(nodes: list[bytes], tensors: list[bytes]) -> bytes:
    """A whole model, with fields around the graph that a reader must pass over."""
    graph = message(*((1, node) for node in nodes), (2, "main"), *((5, tensor) for tensor in tensors))
    return message((1, 7), (2, "pytorch"), (7, graph), (8, message((2, 14))))


def node_message(operation: str, name: str, *inputs: str) -> bytes:
    """An operation."""
    return message(*((1, name) for name in inputs), (2, "result"), (3, name), (4, operation))


def exported(encoder: MoonshineEncoder) -> tuple[list[bytes], list[bytes]]:
    """Nodes and initialisers of an encoder, named as the published file names them: matrices turned, by number."""
    published = {ours: theirs for theirs, ours in MODULES.items()}
    nodes, tensors = [], [tensor_message("one", np.ones(1, dtype=np.float32))]
    for number, (name, parameter) in enumerate(encoder.named_parameters()):
        module, part = name.rsplit(".", 1)
        layer, own = ("", module) if not module.startswith("layers.") else module.split(".", 2)[1:]
        path = (f"/layers.{layer}/" if layer else "/") + published[own].replace(".", "/")
        values = parameter.detach().numpy()
        if values.ndim == 3 and part == "weight":
            bias = [f"{number + 1}"] if f"{module}.bias" in encoder.state_dict() else []
            nodes.append(node_message("Conv", f"{path}/Conv", "x", f"{number}", *bias))
        elif values.ndim == 2:
            nodes.append(node_message("MatMul", f"{path}/MatMul", "x", f"{number}"))
            values = values.T
        elif own in ("second", "third"):
            pass  # the convolution's node has it
        else:
            nodes.append(node_message("Mul" if part == "weight" else "Add", f"{path}/Node", "x", "one", f"{number}"))
        tensors.append(tensor_message(f"{number}", np.ascontiguousarray(values)))
    return nodes, tensors
