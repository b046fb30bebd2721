"""Reading the weights of an ONNX file without the onnx package.

An ONNX file is one protocol-buffer message. Of its hundreds of kinds of content, weights need three: the graph's
nodes (operation, name, names of inputs), and its initialisers (name, shape, numbers). The wire format has four kinds
of values, so a reader of these is shorter than what a dependency on the package and its protobuf would cost.

Field numbers, from the published schema: a model's graph is 7; a graph's nodes are 1 and its initialisers 5; a node's
inputs are 1, its name 3, its operation 4; a tensor's dimensions are 1, its type 2, its float numbers 4, its name 8
and its raw numbers 9.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

import numpy as np

from transducer_gn.common.errors import UserError

VARINT, FIXED_64, BYTES, FIXED_32 = 0, 1, 2, 5
# Data types of tensors: only these hold weights.
FLOAT = 1


class NoMessageError(ValueError):
    """Bytes that are no protocol-buffer message."""


@dataclass(frozen=True)
class Node:
    """One operation of a graph.

    Attributes:
        operation: for example MatMul
        name: where the exporter found it, for example /layers.0/mlp/fc1/MatMul
        inputs: names of what it reads: initialisers, or results of other nodes
    """

    operation: str
    name: str
    inputs: list[str]


@dataclass
class Graph:
    """What a file says of its network.

    Attributes:
        nodes: the operations, each after those whose results it reads
        weights: the initialisers of 32-bit floating-point numbers by name
    """

    nodes: list[Node] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)


def read_graph(path: Path) -> Graph:
    """Read nodes and weights of an ONNX file; what is none is a `UserError`."""
    try:
        graph = _graph(memoryview(path.read_bytes()))
    except (NoMessageError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: this is no ONNX file, or only a part of one ({error})") from error
    if not graph.nodes:
        raise UserError(f"{path}: this is no ONNX file: it holds no graph")
    return graph


def _graph(content: memoryview) -> Graph:
    graph = Graph()
    for number, value in fields(content):
        if number != 7:
            continue
        for part, message in fields(_bytes(value)):
            if part == 1:
                graph.nodes.append(_node(_bytes(message)))
            elif part == 5:
                _add_weight(graph.weights, _bytes(message))
    return graph


def _node(message: memoryview) -> Node:
    inputs, texts = [], {3: "", 4: ""}
    for number, value in fields(message):
        if number == 1:
            inputs.append(_text(value))
        elif number in texts:
            texts[number] = _text(value)
    return Node(operation=texts[4], name=texts[3], inputs=inputs)


def _add_weight(weights: dict[str, np.ndarray], message: memoryview) -> None:
    """Add the tensor of `message` to `weights` if its numbers are 32-bit floats that lie in this file."""
    shape: list[int] = []
    name = ""
    kind: int | memoryview = 0
    numbers: list[memoryview] = []
    for number, value in fields(message):
        if number == 1:
            shape += [value] if isinstance(value, int) else _varints(value)
        elif number == 2:
            kind = value
        elif number == 8:
            name = _text(value)
        elif number in (4, 9):  # one by one, packed, or raw: four bytes per number in each case
            numbers.append(_bytes(value))
    if kind != FLOAT:
        return
    content = b"".join(numbers)
    if len(content) != 4 * prod(shape):
        raise NoMessageError(f"the numbers of {name} are not in it")
    try:
        weights[name] = np.frombuffer(content, dtype="<f4").reshape(shape)
    except (ValueError, OverflowError) as error:
        # No numbers at all, in dimensions of which one is zero and another huge.
        raise NoMessageError(f"{name} has no shape ({error})") from error


def fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield number and value of each field: an integer, or bytes for everything else.

    Args:
        message: the bytes of one message
    """
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        kind = key & 7
        if kind == VARINT:
            value, position = _varint(message, position)
            yield key >> 3, value
            continue
        if kind == BYTES:
            length, position = _varint(message, position)
        elif kind in (FIXED_64, FIXED_32):
            length = 8 if kind == FIXED_64 else 4
        else:
            raise NoMessageError(f"no value is of kind {kind}")
        if position + length > len(message):
            raise NoMessageError("it ends within a value")
        yield key >> 3, message[position : position + length]
        position += length


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    """The integer at `position`, seven bits per byte and the lowest first, and the position after it."""
    value = 0
    for place in range(10):
        if position + place >= len(message):
            raise NoMessageError("it ends within a number")
        byte = message[position + place]
        value |= (byte & 127) << (7 * place)
        if byte < 128:
            return value, position + place + 1
    raise NoMessageError("a number does not end")


def _varints(message: memoryview) -> list[int]:
    """All integers of a packed field."""
    values, position = [], 0
    while position < len(message):
        value, position = _varint(message, position)
        values.append(value)
    return values


def _bytes(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise NoMessageError("a number stands where a message should")
    return value


def _text(value: int | memoryview) -> str:
    return str(_bytes(value), "utf-8")
