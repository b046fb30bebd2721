"""Invariant: `transducer-gn` has every command under one name, imports only the one that is asked for, and ends in one
sentence where it cannot go on; `transcribe` says what the system says.
"""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import soundfile
from mind_changer import REVISED, said, write_mind_changer
from scripts import REPOSITORY

from transducer_gn.commands import COMMANDS, console, subcommand
from transducer_gn.commands.serve import main as serve
from transducer_gn.commands.transcribe import main as transcribe
from transducer_gn.common.errors import UserError


def called(*arguments: str) -> subprocess.CompletedProcess:
    """The program in a process of its own, which then says which large packages it has imported."""
    code = (
        "import atexit, sys\n"
        "large = ('torch', 'lhotse', 'jsonargparse', 'websockets')\n"
        "atexit.register(lambda: print('imported', [name for name in large if name in sys.modules]))\n"
        "from transducer_gn.commands.console import main\n"
        "main()"
    )
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=False)


def test_the_program_is_installed_with_the_package() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {console.PROGRAM: f"{console.__name__}:main"}


def test_help_names_all_commands_and_imports_none() -> None:
    result = called("--help")
    assert result.returncode == 0
    for name, line in COMMANDS.items():
        assert f"\n  {subcommand(name)} " in result.stdout and line in result.stdout
    assert result.stdout.endswith("imported []\n")


def test_a_command_calls_itself_by_its_new_name() -> None:
    result = called("make-manifests", "--help")
    assert result.returncode == 0 and result.stdout.startswith("usage: transducer-gn make-manifests ")
    assert result.stdout.endswith("imported ['jsonargparse']\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["fly"], "transducer-gn: there is no command fly; transducer-gn --help lists all"),
        (["make-manifests", "--wings"], "transducer-gn make-manifests: unknown option --wings; see --help"),
    ],
)
def test_what_is_not_there_is_said(arguments: list[str], sentence: str) -> None:
    result = called(*arguments)
    assert result.returncode == 2
    assert result.stderr.strip() == sentence


def test_examples_use_the_program() -> None:
    for name in COMMANDS:
        text = (REPOSITORY / "transducer_gn" / "commands" / f"{name}.py").read_text().split('"""')[1]
        assert f"  {name}.py" not in text and f"| {name}.py" not in text


def test_without_the_extra_the_server_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("websockets", "transducer_gn.serving"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "websockets", None)
    with pytest.raises(UserError, match=r"pip install 'transducer_gn\[serve\]'"):
        serve(["--checkpoint", "any.pt"])


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trained") / "epoch-1.pt"
    write_mind_changer(path)
    return path


def test_transcribe_gives_text_and_times(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    soundfile.write(tmp_path / "said.wav", said(), 16000)
    soundfile.write(tmp_path / "twice.wav", said(2), 16000)
    transcribe(["--checkpoint", str(checkpoint), str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"{tmp_path / 'said.wav'}: {REVISED}", f"{tmp_path / 'twice.wav'}: {REVISED} {REVISED}"]
    transcribe(["--checkpoint", str(checkpoint), "--json", str(tmp_path / "said.wav")])
    output = capsys.readouterr()
    found = json.loads(output.out)
    assert found["text"] == REVISED
    # The tones begin at 0.4, 1.36 and 2.32 s.
    assert [(word["text"], round(word["start"], 1)) for word in found["words"]] == [
        ("VAN", 0.4),
        ("WENT", 1.4),
        ("DRIVER", 2.4),
    ]
    assert "transcribed: 1/1" in output.err


def test_a_recording_that_cannot_be_read_costs_only_itself(checkpoint: Path, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.zeros(4000), 8000)
    soundfile.write(tmp_path / "b.wav", said(), 16000)
    result = called("transcribe", "--checkpoint", str(checkpoint), str(tmp_path))
    assert result.returncode == 2
    assert f"{tmp_path / 'b.wav'}: {REVISED}\n" in result.stdout
    assert "8000 samples per second" in result.stderr
    assert result.stderr.splitlines()[-1] == "transducer-gn transcribe: 1 of 2 recordings could not be recognised"
