"""Invariant: of an ONNX file the operations and the 32-bit weights are read as the onnx package reads them, and bytes
that are no ONNX file, or a part of one, are refused in a sentence.
"""

import struct
from pathlib import Path

import numpy as np
import pytest
from small_moonshine import PUBLISHED_FILE, message, model_message, needs_published_file, node_message, tensor_message

from transducer_gn.common.errors import UserError
from transducer_gn.model.onnx_file import fields, read_graph

WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3) - 2.5


def written(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    return path


def test_nodes_and_weights(tmp_path: Path) -> None:
    nodes = [node_message("MatMul", "/a/MatMul", "x", "w"), node_message("Add", "/a/Add", "b", "y")]
    tensors = [tensor_message("w", WEIGHT), tensor_message("shape", np.array([1, -1]), kind=7)]
    graph = read_graph(written(tmp_path, model_message(nodes, tensors)))
    assert [(node.operation, node.name, node.inputs) for node in graph.nodes] == [
        ("MatMul", "/a/MatMul", ["x", "w"]),
        ("Add", "/a/Add", ["b", "y"]),
    ]
    assert list(graph.weights) == ["w"]
    np.testing.assert_array_equal(graph.weights["w"], WEIGHT)


def test_numbers_and_dimensions_may_be_packed_or_single(tmp_path: Path) -> None:
    node = node_message("MatMul", "/a/MatMul", "w")
    packed = message((1, bytes([2, 3])), (2, 1), (8, "w"), (4, WEIGHT.tobytes()))
    # Field 4 with wire kind 5: one number of four bytes at a time.
    single = message((1, 2), (1, 3), (2, 1), (8, "w")) + b"".join(
        bytes([4 << 3 | 5]) + struct.pack("<f", number) for number in WEIGHT.flatten()
    )
    for tensor in (packed, single):
        graph = read_graph(written(tmp_path, model_message([node], [tensor])))
        np.testing.assert_array_equal(graph.weights["w"], WEIGHT)


def test_integers_of_several_bytes_and_eight_byte_values() -> None:
    content = message((3, 300), (1000, 2**63)) + bytes([5 << 3 | 1]) + bytes(8)
    assert [(number, value) for number, value in fields(memoryview(content))] == [
        (3, 300),
        (1000, 2**63),
        (5, bytes(8)),
    ]


def test_every_cut_is_refused(tmp_path: Path) -> None:
    """The graph comes last here, so that no cut leaves a complete message with a graph."""
    content = message((1, 7), (7, message((1, node_message("MatMul", "/a", "w")), (5, tensor_message("w", WEIGHT)))))
    read_graph(written(tmp_path, content))
    for length in range(len(content)):
        with pytest.raises(UserError, match=r"model.onnx: this is no ONNX file"):
            read_graph(written(tmp_path, content[:length]))


@pytest.mark.parametrize(
    "content",
    [
        b"RIFF\x24\x08\x00\x00WAVEfmt ",
        b"PK\x03\x04" + bytes(100),
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n",
        b"\x7fELF" + bytes(60),
        bytes(200),
        b"\xff" * 50,
        message((7, 5)),
        message((7, message((1, message((3, b"\xff\xfe")))))),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UserError, match=r"model.onnx: this is no ONNX file"):
        read_graph(written(tmp_path, content))


def test_weights_that_lie_elsewhere_are_refused_by_name(tmp_path: Path) -> None:
    node = node_message("MatMul", "/a/MatMul", "w")
    outside = message((1, 2), (2, 1), (8, "w"), (13, message((1, "location"), (2, "w.bin"))), (14, 1))
    short = message((1, 3), (2, 1), (8, "w"), (9, bytes(8)))
    for tensor in (outside, short):
        with pytest.raises(UserError, match="numbers of w are not in it"):
            read_graph(written(tmp_path, model_message([node], [tensor])))
    for sizes in ((0, 2**62, 4), (0, 2**64 - 1)):
        huge = message(*((1, size) for size in sizes), (2, 1), (8, "w"))
        with pytest.raises(UserError, match="w has no shape"):
            read_graph(written(tmp_path, model_message([node], [huge])))


@needs_published_file
def test_published_file_is_read_as_the_onnx_package_reads_it() -> None:
    onnx = pytest.importorskip("onnx")
    ours, theirs = read_graph(PUBLISHED_FILE), onnx.load(PUBLISHED_FILE).graph
    assert [(n.operation, n.name, n.inputs) for n in ours.nodes] == [
        (n.op_type, n.name, list(n.input)) for n in theirs.node
    ]
    floats = {t.name: onnx.numpy_helper.to_array(t) for t in theirs.initializer if t.data_type == 1}
    assert ours.weights.keys() == floats.keys()
    for name, weight in ours.weights.items():
        np.testing.assert_array_equal(weight, floats[name])
