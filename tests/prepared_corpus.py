"""A tiny mini corpus, prepared once for all tests that only read it, and tools to make small corpora."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from small_corpora import REPOSITORY, TINY, environment_in, write_chapter


@pytest.fixture(scope="session")
def environment(tmp_path_factory) -> dict[str, str]:
    """Environment variables with which prepare.sh uses this Python instead of installing one of its own."""
    return environment_in(tmp_path_factory.mktemp("venv"))


@pytest.fixture(scope="session")
def program(environment) -> Callable[..., subprocess.CompletedProcess]:
    """Run one of the programs in local/, or prepare.sh, as a user would."""

    def run(name: str, *arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess:
        script = REPOSITORY / ("prepare.sh" if name == "prepare" else f"local/{name}.py")
        command = [str(part) for part in (*([] if name == "prepare" else [sys.executable]), script, *arguments)]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
        assert not check or result.returncode == 0, result.stdout + result.stderr
        return result

    return run


@pytest.fixture(scope="session")
def prepared(program, tmp_path_factory) -> Path:
    """A prepared folder of a tiny mini corpus. Tests must not change it."""
    folder = tmp_path_factory.mktemp("prepared")
    program("make_mini_corpus", "--corpus-dir", folder / "corpus", *TINY)
    program("prepare", "--data-dir", folder, "--stage", "1", "--vocab-sizes", "60,32")
    return folder


@pytest.fixture
def small_corpus(tmp_path) -> Path:
    """A corpus of noise in LibriSpeech's layout: parts train-a and dev-a, two speakers, three utterances each."""
    root = tmp_path / "small"
    for part, speaker in (("train-a", 1), ("train-a", 2), ("dev-a", 3)):
        write_chapter(root / part / str(speaker) / "7", [f"{speaker}-7-{index:04d}" for index in range(3)])
    return root
