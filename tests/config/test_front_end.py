"""Invariant: a front end's settings give its framing, survive a file, and are refused by name where they contradict."""

import json
from dataclasses import asdict

import pytest
from jsonargparse import ArgumentParser

from transducer_gn.common.errors import UserError
from transducer_gn.common.framing import FILTER_BANKS
from transducer_gn.config.fields import changed_settings
from transducer_gn.config.front_end import FrontEndConfig
from transducer_gn.config.model import EncoderConfig, ModelConfig, StreamingConfig
from transducer_gn.model.moonshine import MOONSHINE_TINY
from transducer_gn.model.moonshine_context import FRAME_WINDOW, OUTPUT_STEP


def test_framings() -> None:
    assert FrontEndConfig().framing == FILTER_BANKS
    framing = FrontEndConfig("moonshine-tiny", layers=(4, 6), right=320, stack=2).framing
    assert (framing.feature_dim, framing.subsampling, framing.right) == (576, 2, 5120)
    assert framing.feature_step == OUTPUT_STEP
    assert framing.frame_shift == pytest.approx(0.04)


def test_frames_that_become_known_together() -> None:
    assert FrontEndConfig().chunk_frames == 1
    assert FrontEndConfig("moonshine-tiny", chunk=640, stack=4).chunk_frames == 8
    assert FrontEndConfig("moonshine-tiny", chunk=160, stack=2).chunk_frames == 4
    assert FrontEndConfig("moonshine-tiny", chunk=None).chunk_frames is None


def test_chunks_of_the_encoder_must_fit() -> None:
    FrontEndConfig().check_chunk(3, "chunk")
    front_end = FrontEndConfig("moonshine-tiny")
    for fitting in (None, 8, 16):
        front_end.check_chunk(fitting, "chunk")
    with pytest.raises(UserError, match="model.streaming.chunk: must be a multiple of the 8 frames .*640 ms.*, not 12"):
        ModelConfig(front_end=front_end, streaming=StreamingConfig(chunk=12, left_context=24))
    with pytest.raises(UserError, match="model.streaming.chunk: must be null, since the front end sees whole"):
        ModelConfig(front_end=FrontEndConfig("moonshine-tiny", chunk=None))


def test_an_encoder_that_looks_ahead_has_a_front_end_that_hears_everything() -> None:
    whole = StreamingConfig(dynamic_chunks=False, chunk=None)
    ModelConfig(
        front_end=FrontEndConfig("moonshine-tiny", chunk=None), encoder=EncoderConfig(causal=False), streaming=whole
    )
    ModelConfig(encoder=EncoderConfig(causal=False), streaming=whole)
    ModelConfig(front_end=FrontEndConfig("moonshine-tiny"), streaming=whole)
    with pytest.raises(UserError, match="model.front_end.chunk: must be null where model.encoder.causal is false"):
        ModelConfig(front_end=FrontEndConfig("moonshine-tiny"), encoder=EncoderConfig(causal=False), streaming=whole)


def test_only_a_pretrained_front_end_that_is_not_frozen_is_trained() -> None:
    assert FrontEndConfig("moonshine-tiny", freeze=False).is_trained
    assert not FrontEndConfig("moonshine-tiny").is_trained and not FrontEndConfig(freeze=False).is_trained


def test_numbers_are_those_of_the_model() -> None:
    framing = FrontEndConfig("moonshine-tiny", layers=tuple(range(1, MOONSHINE_TINY.layers + 1))).framing
    assert framing.feature_dim == MOONSHINE_TINY.dim * MOONSHINE_TINY.layers
    # The shortest chunk that may be set is the shortest that has a frame.
    assert 16 * FrontEndConfig("moonshine-tiny", chunk=60, stack=1).chunk >= FRAME_WINDOW
    with pytest.raises(UserError, match="at least 60"):
        FrontEndConfig("moonshine-tiny", chunk=40, stack=1)


def test_settings_survive_a_file_and_a_command_line() -> None:
    config = FrontEndConfig("moonshine-tiny", layers=(1, 6), chunk=320, right=160, left_chunks=4)
    assert FrontEndConfig(**json.loads(json.dumps(asdict(config)))) == config
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(FrontEndConfig, "front_end")
    parsed = parser.parse_args(["--front_end.kind", "moonshine-tiny", "--front_end.layers", "[1, 6]"])
    assert parser.instantiate(parsed).front_end == FrontEndConfig("moonshine-tiny", layers=(1, 6))


def test_no_setting_may_change_on_resume() -> None:
    assert changed_settings(FrontEndConfig(right=0), FrontEndConfig(right=320)) == ["right (was 0, is 320)"]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"kind": "mel"}, 'kind: must be "filter-banks" or "moonshine-tiny", not "mel"'),
        ({"layers": (2, 7)}, r"layers: must be rising numbers from 1 to 6, not \[2, 7\]"),
        ({"layers": (4, 2)}, "layers: must be rising"),
        ({"layers": (0, 2)}, "layers: must be rising"),
        ({"layers": ()}, "layers: must be rising"),
        ({"chunk": 600}, "chunk: must be a multiple of 80 ms"),
        ({"right": -20}, "right: must be 0 or more"),
        ({"left_chunks": -1}, "left_chunks: must be 0 or more"),
        ({"stack": 0}, "stack: must be above 0"),
        ({"chunk": None, "right": 20}, "right: needs model.front_end.chunk"),
        ({"chunk": None, "left_chunks": 2}, "left_chunks: needs model.front_end.chunk"),
    ],
)
def test_what_contradicts_is_refused_by_name(settings: dict[str, object], problem: str) -> None:
    with pytest.raises(UserError, match=f"model.front_end.{problem}"):
        FrontEndConfig(**settings)
