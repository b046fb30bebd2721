"""Invariant: flags may have dashes or underscores, files of settings may stand on others, and a wrong flag ends in one
sentence that names it as users do.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from transducer_gn.common.command_line import command_parser, run_command, settings_from
from transducer_gn.common.errors import UserError
from transducer_gn.config import config_parser, read_config


@dataclass(frozen=True)
class Options:
    """Some options.

    Attributes:
        data_dir: a folder
        max_size: a number
        kind: one of two
        some_text: a text
    """

    data_dir: Path
    max_size: int | None = None
    kind: Literal["big", "small"] = "big"
    some_text: str = "none"


def parse(*arguments: str) -> Options:
    return settings_from(Options, command_parser("A test.", Options).parse_args(list(arguments)))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--data-dir", "a-b_c", "--max-size", "3"),
        ("--data_dir=a-b_c", "--max_size=3"),
        ("--data-dir=a-b_c", "--max_size", "3"),
    ],
)
def test_dashes_or_underscores_in_names_but_values_stay(arguments):
    assert parse(*arguments) == Options(Path("a-b_c"), 3)


def test_a_value_that_looks_like_a_flag_is_left_alone():
    assert parse("--data-dir", "x", "--some-text=--other-flag a-b").some_text == "--other-flag a-b"


def test_settings_of_sections_too():
    config, _ = read_config(config_parser("A test."), ["--model.vocab-size", "7", "--training.log-interval=3"])
    assert (config.model.vocab_size, config.training.log_interval) == (7, 3)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--max-size", "many", "--data-dir", "x"], "--max-size must be a whole number or null, not 'many'"),
        (["--kind", "huge", "--data-dir", "x"], "--kind must be one of 'big', 'small', not 'huge'"),
        (["--data-dir"], "--data-dir needs a value"),
        ([], "--data-dir must be given"),
        (["--data-dir", "x", "--no-such", "3"], "unknown option --no-such 3"),
        (["--data-dir", "x", "--config", "none.yaml"], "--config: File does not exist"),
    ],
)
def test_a_wrong_flag_is_one_sentence(arguments, said):
    with pytest.raises(UserError) as caught:
        parse(*arguments)
    assert str(caught.value).startswith(said) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("old", "new"), [
    ("optimiser.lr_batches", "optimiser.lr_updates"),
    ("optimiser.warmup_batches", "optimiser.warmup_updates"),
    ("data.batches.max_tokens_per_frame", "data.batches.max_token_density"),
])  # fmt: skip
def test_an_old_name_says_the_new_one(old, new, tmp_path):
    *sections, name = old.split(".")
    lines = [f"{'  ' * depth}{section}:" for depth, section in enumerate(sections)]
    (tmp_path / "old.yaml").write_text("\n".join([*lines, f"{'  ' * len(sections)}{name}: 5"]) + "\n")
    for flags in ([f"--{old}", "5"], [f"--{old}=5"], ["--config", str(tmp_path / "old.yaml")]):
        with pytest.raises(UserError, match=f"{old} is now called {new}"):
            read_config(config_parser("A test."), flags)


def test_a_section_that_is_given_one_value_is_a_sentence(tmp_path):
    name = "--model.front_end"
    said = f"{name} has settings by name, {name}.NAME VALUE, or in a file; 'moonshine-tiny' is neither"
    (tmp_path / "short.yaml").write_text("model:\n  front_end: moonshine-tiny\n")
    for flags in (["--model.front_end", "moonshine-tiny"], ["--config", str(tmp_path / "short.yaml")]):
        with pytest.raises(UserError) as caught:
            read_config(config_parser("A test."), flags)
        assert str(caught.value).startswith(said) and "\n" not in str(caught.value)


def test_a_file_of_settings_stands_on_another(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "root.yaml").write_text("model:\n  vocab_size: 5\noptimiser:\n  eps: 1e-6\n  beta1: 0.5\n")
    (tmp_path / "sub" / "middle.yaml").write_text(
        "base: ../root.yaml  # up\noptimiser:\n  beta1: 0.6\n  lr_epochs: 2\n"
    )
    (tmp_path / "top.yaml").write_text("# Top.\nbase: sub/middle.yaml\noptimiser:\n  lr_epochs: 3\n")
    config, _ = read_config(
        config_parser("A test."), ["--config", str(tmp_path / "top.yaml"), "--model.joiner.dim", "9"]
    )
    found = config.optimiser
    assert (found.eps, found.beta1, found.lr_epochs) == (1e-6, 0.6, 3)
    assert (config.model.vocab_size, config.model.joiner.dim) == (5, 9)
    (tmp_path / "alias.yaml").write_text("# Nothing of its own.\nbase: sub/middle.yaml\n")
    config, _ = read_config(config_parser("A test."), ["--config", str(tmp_path / "alias.yaml")])
    assert config.optimiser.beta1 == 0.6
    (tmp_path / "top.yaml").write_text("base: nowhere.yaml\n")
    with pytest.raises(UserError, match="top.yaml: cannot read its base nowhere.yaml"):
        read_config(config_parser("A test."), ["--config", str(tmp_path / "top.yaml")])


def test_a_file_of_settings_with_an_endless_number_is_no_yaml(tmp_path):
    (tmp_path / "a.yaml").write_text(f"training:\n  epochs: {'1' * 5000}\n")
    with pytest.raises(UserError, match="--config names a file that is no YAML .*digits"):
        config_parser(None).parse_args(["--config", str(tmp_path / "a.yaml")])


def test_a_number_that_no_float_can_hold_is_a_sentence(tmp_path: Path) -> None:
    number = "1" + "0" * 400
    (tmp_path / "a.yaml").write_text(f"optimiser:\n  initial_lr: {number}\n")
    for arguments in (["--config", str(tmp_path / "a.yaml")], ["--optimiser.initial_lr", number]):
        with pytest.raises(UserError, match="a number among the settings is too large"):
            config_parser(None).parse_args(arguments)


@pytest.mark.parametrize("text", ["{" * 30_000, "- " * 30_000, "a: " + "[" * 51 + "]" * 51])
def test_settings_nested_too_deeply_are_a_sentence(text: str, tmp_path: Path) -> None:
    """The first two ended the process with a segmentation fault."""
    (tmp_path / "deep.yaml").write_text(text)
    with pytest.raises(UserError, match="deep.yaml: has sections within sections 50 times"):
        command_parser(None).parse_args(["--config", str(tmp_path / "deep.yaml")])
    with pytest.raises(UserError, match=r"\.\.\. has brackets within brackets 50 times"):
        command_parser(None).parse_args(["--config", text])


def test_settings_may_be_nested_a_little(tmp_path: Path) -> None:
    """50 times is not too often: what is wrong here is that there is no such setting."""
    (tmp_path / "deep.yaml").write_text("a: " + "[" * 49 + "]" * 49)
    with pytest.raises(UserError, match="Option 'a' is not accepted"):
        command_parser(None).parse_args(["--config", str(tmp_path / "deep.yaml")])


def test_files_on_top_of_systems_do_not_stand_on_systems():
    """Else a file that is given second would undo what the first one says."""
    conf = Path(__file__).parents[2] / "conf"
    system, _ = read_config(config_parser("A test."), ["--config", str(conf / "mini.yaml")])
    for name in ("lookahead", "small-finite-state", "finite-state-32", "mini-global"):
        flags = ["--config", str(conf / "mini.yaml"), "--config", str(conf / f"{name}.yaml")]
        changed, _ = read_config(config_parser("A test."), flags)
        assert changed.model.encoder.dim == system.model.encoder.dim, name
        assert changed.training == system.training, name


def test_a_command_that_cannot_write_says_so(tmp_path, capsys):
    def main() -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path / "x"))

    with pytest.raises(SystemExit) as caught:
        run_command(main)
    assert caught.value.code == 2
    assert f"cannot write {tmp_path / 'x'}: permission denied" in capsys.readouterr().err
