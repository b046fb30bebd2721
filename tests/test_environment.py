"""Invariant: the set-up installs what is pinned, once, and the build of torch that the user names before all else."""

import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
# Notes what it is called with, and makes copies of itself for a virtual environment.
PYTHON = """#!/bin/bash
echo "$@" >> "{log}"
if [ "$1 $2" = "-m venv" ]; then mkdir -p "$4/bin"; cp "$0" "$4/bin/python"; fi
case "$*" in *whl/nothing*) exit 1 ;; esac
"""


@pytest.fixture
def set_up(tmp_path):
    """A function that sets up an environment and returns the calls of Python, and how it ended."""
    python, log = tmp_path / "python", tmp_path / "log"
    python.write_text(PYTHON.format(log=log))
    python.chmod(0o755)

    def run(**variables):
        log.write_text("")
        environment = {"PATH": "/usr/bin:/bin", "PYTHON": str(python), "TRANSDUCER_GN_VENV": str(tmp_path / "venv")}
        command = ["bash", "-c", f"set -e; source {REPOSITORY}/local/environment.sh"]
        result = subprocess.run(command, env=environment | variables, capture_output=True, text=True, timeout=60)
        return [line for line in log.read_text().splitlines() if "pip install" in line], result

    return run


def test_what_is_pinned_is_installed_once(set_up):
    calls, result = set_up()
    assert result.returncode == 0 and len(calls) == 2
    assert "requirements.txt" in calls[0] and "index-url" not in calls[0] and "--no-deps" in calls[1]
    assert set_up()[0] == []


def test_a_build_of_torch_comes_first_and_another_one_anew(set_up):
    pin = next(
        line for line in (REPOSITORY / "requirements.txt").read_text().splitlines() if line.startswith("torch==")
    )
    calls, _ = set_up(TRANSDUCER_GN_TORCH="cu126")
    assert len(calls) == 3 and pin in calls[0] and calls[0].endswith("/whl/cu126") and "requirements.txt" in calls[1]
    assert set_up(TRANSDUCER_GN_TORCH="cu126")[0] == []
    assert len(set_up(TRANSDUCER_GN_TORCH="cu130")[0]) == 3


def test_a_build_that_does_not_exist_ends_with_a_sentence(set_up):
    calls, result = set_up(TRANSDUCER_GN_TORCH="nothing")
    assert result.returncode != 0 and len(calls) == 1
    assert "there is no build nothing of this torch; see README.md" in result.stderr


@pytest.mark.parametrize("program", ["cat", "sed", "sha256sum"])
def test_a_killed_check_does_not_throw_away_what_is_installed(set_up, tmp_path, program):
    set_up()
    killed = tmp_path / "killed" / program
    killed.parent.mkdir()
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o755)
    calls, result = set_up(PATH=f"{killed.parent}:/usr/bin:/bin")
    assert calls == [] and result.returncode != 0 and "what must be installed; call again" in result.stderr
    assert set_up()[0] == []
