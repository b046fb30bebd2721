"""Invariant: files and flags fill every setting, later ones win, and a wrong or contradictory setting ends in one
sentence that names it.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from transducer_gn.common.errors import UserError
from transducer_gn.config import (
    Config,
    EncoderConfig,
    JoinerConfig,
    ModelConfig,
    OptimiserConfig,
    PredictorConfig,
    RecognitionConfig,
    StreamingConfig,
    config_parser,
    read_config,
)

ROOT = Path(__file__).parents[2]


def read(*arguments: str) -> Config:
    """Settings from flags."""
    return read_config(config_parser("A test."), list(arguments))[0]


def test_no_file_and_no_flags_are_the_defaults() -> None:
    assert read() == Config()


def test_files_and_flags_override_in_order(tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("model:\n  vocab_size: 40\n  encoder:\n    layers: 3\n    heads: 4\n")
    second.write_text("model:\n  encoder:\n    layers: 5\n  streaming:\n    left_context: null\n")
    config = read("--config", str(first), "--config", str(second), "--model.encoder.heads", "2")
    assert config.model.vocab_size == 40
    assert (config.model.encoder.layers, config.model.encoder.heads) == (5, 2)
    assert config.model.streaming.left_context is None
    assert config.optimiser == OptimiserConfig()


@pytest.mark.parametrize(
    ("text", "named"),
    [("model:\n  encoder:\n", "--model.encoder has"), ("training: {epochs: null}\n", "--training.epochs has")],
)
def test_a_name_without_a_value_is_named(text: str, named: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(UserError, match=f"{named} no value"):
        read("--config", str(tmp_path / "a.yaml"))


@pytest.mark.parametrize(
    ("text", "named"),
    [("model: 5\n", "--model"), ("model: [a: 1]\n", "--model"), ("model:\n  encoder: [2]\n", "--model.encoder")],
)
def test_a_section_holds_settings(text: str, named: str, tmp_path: Path) -> None:
    """The parser takes anything for one, and adds to it what comes later."""
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(UserError, match=f"^{named} must be names and values of settings, not (5|a list)$"):
        read("--config", str(tmp_path / "a.yaml"))
    with pytest.raises(UserError, match=f"^{named} must be names and values of settings wherever"):
        read("--config", str(tmp_path / "a.yaml"), "--model.encoder.layers", "3")


def test_a_section_without_settings_stays_none_when_a_flag_comes_later(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("model:\n  encoder:\n")
    with pytest.raises(UserError, match="^--model.encoder must be names and values of settings wherever"):
        read("--config", str(tmp_path / "a.yaml"), "--model.encoder.layers", "3")


def test_a_script_can_add_flags_of_its_own() -> None:
    parser = config_parser("A test.")
    parser.add_argument("--exp-dir", type=str)
    config, flags = read_config(parser, ["--exp-dir", "here", "--optimiser.kind", "adamw"])
    assert flags.exp_dir == "here" and config.optimiser.kind == "adamw"


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: EncoderConfig(attention_dim=100, heads=8), "model.encoder.attention_dim.*model.encoder.heads"),
        (lambda: EncoderConfig(kernel=30), "model.encoder.kernel"),
        (lambda: EncoderConfig(dim=31), "model.encoder.dim"),
        (lambda: EncoderConfig(layers=0), "model.encoder.layers"),
        (lambda: EncoderConfig(dropout=1.0), "model.encoder.dropout"),
        (lambda: StreamingConfig(chunk=16, left_context=40), "model.streaming.left_context.*model.streaming.chunk"),
        (lambda: StreamingConfig(chunk=0), "model.streaming.chunk"),
        (lambda: StreamingConfig(left_chunks=-1), "model.streaming.left_chunks"),
        (lambda: StreamingConfig(tail_padding=2**32), "model.streaming.tail_padding"),
        (lambda: RecognitionConfig(tail_padding=2**32), "--tail-padding"),
        (lambda: StreamingConfig(max_chunk=0), "model.streaming.max_chunk"),
        (lambda: PredictorConfig(kind="gru"), "model.predictor.kind"),
        (lambda: PredictorConfig(context=0), "model.predictor.context"),
        (lambda: JoinerConfig(dim=0), "model.joiner.dim"),
        (lambda: ModelConfig(vocab_size=1), "model.vocab_size"),
        (lambda: ModelConfig(encoder=EncoderConfig(causal=False)), "model.streaming.dynamic_chunks.*causal"),
        (
            lambda: ModelConfig(
                encoder=EncoderConfig(causal=False), streaming=StreamingConfig(dynamic_chunks=False, chunk=4)
            ),
            "model.streaming.chunk.*causal",
        ),
        (lambda: OptimiserConfig(kind="sgd"), "optimiser.kind"),
        (lambda: OptimiserConfig(initial_lr=0.0), "optimiser.initial_lr"),
        (lambda: OptimiserConfig(beta2=1.0), "optimiser.beta2"),
    ],
)
def test_a_wrong_setting_is_named(make: Callable[[], object], named: str) -> None:
    with pytest.raises(UserError, match=named) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_full_context_training_and_evaluation_need_no_causal_convolution() -> None:
    streaming = StreamingConfig(dynamic_chunks=False, chunk=None, left_context=None)
    assert not ModelConfig(encoder=EncoderConfig(causal=False), streaming=streaming).encoder.causal


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--model.encoder.heads", "7"], "model.encoder.heads = 7"),
        (["--model.encoder.layers", "many"], "model.encoder.layers"),
    ],
)
def test_a_program_ends_with_the_sentence(flags: list[str], named: str) -> None:
    command = [sys.executable, "-m", "transducer_gn.model.count", *flags]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 2
    assert named in result.stderr and "Traceback" not in result.stderr
