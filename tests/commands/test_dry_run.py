"""Invariant: every command that a dry run of all experiments prints is one that its program accepts as it stands:
options that are in the list of options, values of their kinds, settings that fit together, files that exist.
"""

import importlib
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from commands.option_list import FIXTURE, shell_options
from scripts import REPOSITORY

from transducer_gn.commands import run
from transducer_gn.config import read_config

LOG_LINE = re.compile(r"\d\d:\d\d:\d\d stage \d+: ")
WITHOUT_VALUE = {"--skip-bad", "--musan", "--shar"}
LISTED = {tuple(line.split()) for line in FIXTURE.read_text().splitlines()}
LIBRISPEECH = ("--corpus", "librispeech")
CALLS = {
    "as it is": LIBRISPEECH,
    "8 GPUs": (*LIBRISPEECH, "--world-size", "8"),
    "many machines": (
        *LIBRISPEECH, "--prepare-flags", "--musan --shar --shard-size 2000 --nj 15", "--train-flags",
        "--data.shar true --data.batches.num_workers 4 --data.batches.noise.enabled true",
    ),
    "100 hours": ("--corpus", "librispeech-100", "--sets", "test-clean", "--latency-utterances", "50"),
    "side by side": (*LIBRISPEECH, "--jobs", "2", "--epochs", "12", "--branch-epoch", "4", "--early-epoch", "2"),
}  # fmt: skip


def printed(capsys, arguments) -> list[list[str]]:
    """The commands that a dry run prints, without what stands before them for the environment."""
    run.main(["--dry-run", *arguments])
    lines = [line for line in capsys.readouterr().out.splitlines() if not LOG_LINE.match(line)]
    return [shlex.split(re.sub(r"^(?:[A-Z_]+=\S+ )+", "", line)) for line in lines]


def check_prepare(flags: list[str]) -> None:
    """Read flags as the loop of prepare.sh does."""
    known, words = shell_options(REPOSITORY / "prepare.sh"), iter(flags)
    for word in words:
        assert word in known and ("prepare.sh", word) in LISTED, word
        if word not in WITHOUT_VALUE:
            assert not next(words).startswith("--")


def check_script(name: str, flags: list[str]) -> None:
    """Let the script's own parser read flags, and the settings be built of them."""
    given = [word for word in flags if word.startswith("--")]
    for word in given:
        assert (name, word.replace("-", "_").replace("__", "--", 1)) in LISTED, word
    parser = importlib.import_module(f"transducer_gn.commands.{name}").parser()
    if name == "train":
        config, _ = read_config(parser, flags)
        assert config.training.epochs > 0
    else:
        parser.parse_args(flags)
    files = [Path(value) for flag, value in pairwise(flags) if flag in ("--config", "--experiments")]
    assert all(file.is_file() for file in files)


@pytest.mark.parametrize("call", CALLS)
def test_every_command_is_one_that_its_program_accepts(call, capsys):
    commands = printed(capsys, CALLS[call])
    programs = []
    for command in commands:
        if command[0] == "python":
            script = Path(command[1])
            assert script.is_file()
            programs.append(script.stem)
            check_script(script.stem, command[2:])
        else:
            assert command[0] == str(REPOSITORY / "prepare.sh")
            programs.append("prepare")
            check_prepare(command[1:])
    # The order in which they are printed is that in which they run.
    assert list(dict.fromkeys(programs)) == ["prepare", "train", "decode", "compute_latency", "report"]
    assert programs.count("train") == programs.count("decode") == programs.count("compute_latency") > 10


def test_branches_come_after_what_they_branch_off_from(capsys):
    made = set()
    for command in printed(capsys, CALLS["8 GPUs"]):
        if "--branch-from" in command:
            parent, epoch = Path(command[command.index("--branch-from") + 1]).parts[-2:]
            assert (parent, int(epoch.removeprefix("epoch-").removesuffix(".pt"))) in made
        if "--training.epochs" in command:
            name = Path(command[command.index("--exp-dir") + 1]).name
            made |= {(name, number) for number in range(int(command[command.index("--training.epochs") + 1]) + 1)}
