"""Invariant: a file gives every parameter its own weights, the published file the published encoder, and whatever else
a file may be is refused in a sentence that says how to get the right one.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_moonshine import (
    PUBLISHED_FILE,
    SMALL,
    audio,
    batch,
    exported,
    model_message,
    needs_published_file,
    small_moonshine,
)

from transducer_gn.common.errors import UserError
from transducer_gn.model.moonshine import MOONSHINE_TINY, MoonshineEncoder, MoonshineShape
from transducer_gn.model.moonshine_file import encoder_of_graph, read_moonshine_tiny
from transducer_gn.model.onnx_file import read_graph


def written(tmp_path: Path, nodes: list[bytes], tensors: list[bytes]) -> Path:
    path = tmp_path / "encoder.onnx"
    path.write_bytes(model_message(nodes, tensors))
    return path


def test_every_parameter_gets_its_own_weights(tmp_path: Path) -> None:
    encoder = small_moonshine()
    path = written(tmp_path, *exported(encoder))
    read = encoder_of_graph(read_graph(path), SMALL, str(path))
    assert not read.training
    assert read.state_dict().keys() == encoder.state_dict().keys()
    for name, parameter in encoder.state_dict().items():
        torch.testing.assert_close(read.state_dict()[name], parameter, rtol=0, atol=0)


def test_other_shapes_are_refused(tmp_path: Path) -> None:
    base = MoonshineShape("Moonshine base", dim=416, layers=8, heads=8, feedforward_dim=1664, rotated=46)
    path = written(tmp_path, *exported(MoonshineEncoder(base)))
    with pytest.raises(
        UserError, match=r"encoder.onnx: this is not Moonshine tiny: its wave.weight is 416 x 1 x 127, not 288"
    ):
        read_moonshine_tiny(path)


def test_a_missing_and_a_surplus_layer_are_refused(tmp_path: Path) -> None:
    encoder = small_moonshine()
    path = written(tmp_path, *exported(encoder))
    for layers, problem in ((4, "it has no layers.3.attention_norm.weight"), (2, "it has a layers.2.*, too")):
        shape = replace(SMALL, layers=layers)
        with pytest.raises(UserError, match=problem):
            encoder_of_graph(read_graph(path), shape, str(path))


def test_a_quantised_file_is_refused(tmp_path: Path) -> None:
    """There, matrices are bytes, read by other operations."""
    nodes, tensors = exported(small_moonshine())
    kept = [node for node in nodes if b"MatMul" not in node]
    path = written(tmp_path, kept, tensors)
    with pytest.raises(
        UserError, match="not small Moonshine in 32-bit numbers: it has no layers.0.attention.query.weight"
    ):
        encoder_of_graph(read_graph(path), SMALL, str(path))


def test_right_shapes_with_other_numbers_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, *exported(MoonshineEncoder(MOONSHINE_TINY)))
    with pytest.raises(UserError, match=r"not the published file; `npm pack @usefulsensors/moonshine-js@0.1.2`"):
        read_moonshine_tiny(path)


def test_a_missing_file_is_refused_with_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none.onnx: there is no such file; `npm pack @usefulsensors"):
        read_moonshine_tiny(tmp_path / "none.onnx")


@needs_published_file
@pytest.mark.parametrize("length", [895, 16000, 16000 * 7 + 13])
def test_published_encoder_equals_onnxruntime(length: int) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(PUBLISHED_FILE))
    samples, lengths = batch(audio(length))
    (expected,) = session.run(None, {"input_values": samples.numpy()})
    with torch.no_grad():
        frames, counts = read_moonshine_tiny(PUBLISHED_FILE)(samples, lengths)
    assert counts.tolist() == [expected.shape[1]]
    # The numbers are of size 5; the two differ by their order of sums.
    torch.testing.assert_close(frames, torch.from_numpy(expected), rtol=0, atol=3e-4)
