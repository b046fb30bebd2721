"""Invariant: an export is whole, says all that a runtime has to know, and is refused with a sentence where there is no
graph for something.
"""

import json
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from scripts import run_script
from small_exports import exported, small_system
from small_systems import write_checkpoint

import transducer_gn
from transducer_gn.common.errors import UserError
from transducer_gn.config import RecognitionConfig
from transducer_gn.export.write import export_system
from transducer_gn.recognition.system import System
from transducer_gn.runtime.layout import read_layout


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> System:
    return small_system(tmp_path_factory.mktemp("trained"))


def test_metadata_have_all_numbers_and_agree_with_the_graphs(system: System, tmp_path: Path) -> None:
    folder = exported(system, tmp_path, chunk=6, left_context=12, max_tokens_per_frame=2)
    layout = read_layout(folder)
    assert (layout.alpha, layout.chunk, layout.left_context, layout.max_tokens_per_frame) == (0.3, 6, 12, 2)
    assert layout.framing == system.model.encoder.framing and layout.blank == 0
    content = json.loads((folder / "metadata.json").read_text())
    assert content["features"]["preemphasis"] == 0.97 and content["sampling_rate"] == 16000
    for precision in ("", ".int8"):
        encoder = onnx.load(folder / f"encoder{precision}.onnx")
        shapes = {x.name: [d.dim_value for d in x.type.tensor_type.shape.dim] for x in encoder.graph.input}
        assert shapes["memory"][1:] == layout.memory and shapes["history"][1:] == layout.history
        assert shapes["features"] == [0, layout.framing.features_seen(6), layout.framing.feature_dim]
        predictor = onnx.load(folder / f"predictor{precision}.onnx")
        shapes = {x.name: [d.dim_value for d in x.type.tensor_type.shape.dim] for x in predictor.graph.input}
        assert shapes == {"tokens": [0]} | {x.name: [0, *x.shape] for x in layout.predictor_state}
        properties = {entry.key: entry.value for entry in onnx.load(folder / f"joiner{precision}.onnx").metadata_props}
        assert properties["alpha"] == "0.3" and "added up as they are" in properties["normalised"]
    tokens = (folder / "tokens.txt").read_text().splitlines()
    assert len(tokens) == layout.vocab_size and tokens[0] == "<blk> 0"


def test_eight_bits_are_smaller_and_only_there_if_asked_for(system: System, tmp_path: Path) -> None:
    folder = exported(system, tmp_path / "both")
    assert (folder / "encoder.int8.onnx").stat().st_size < (folder / "encoder.onnx").stat().st_size
    export_system(system, tmp_path / "one", RecognitionConfig())
    assert not list((tmp_path / "one").glob("*int8*")) and read_layout(tmp_path / "one").precisions == ["float32"]


def test_what_has_no_graph_is_refused_and_nothing_is_written(system: System, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "ahead.pt", causal=False)
    unlimited = replace(system.config.model.streaming, left_context=None)
    endless = replace(system, config=replace(system.config, model=replace(system.config.model, streaming=unlimited)))
    cases = [
        (transducer_gn.load(tmp_path / "ahead.pt"), "has no chunks"),
        (endless, "--left-context: an exported system has a memory of fixed size"),
    ]
    for refused, sentence in cases:
        with pytest.raises(UserError, match=sentence):
            export_system(refused, tmp_path / "out", RecognitionConfig())
    assert not (tmp_path / "out").exists()


def test_the_command_exports_what_can_be_loaded(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "epoch-1.pt")
    result = run_script(
        "export.py", "--checkpoint", tmp_path / "epoch-1.pt", "--output", tmp_path / "out", "--alpha", "0.5"
    )
    assert "encoder.onnx" in result.stdout and "alpha 0.5" in result.stdout
    assert transducer_gn.load_exported(tmp_path / "out").layout.alpha == 0.5
    result = run_script("export.py", "--checkpoint", tmp_path / "no.pt", "--output", tmp_path / "other", check=False)
    assert result.returncode == 2 and "no.pt" in result.stderr and not (tmp_path / "other").exists()
