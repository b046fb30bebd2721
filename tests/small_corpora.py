"""Small corpora for tests, the environment in which to prepare them, and comparison of folders."""

import hashlib
import os
import sys
from pathlib import Path

import numpy as np
import soundfile

REPOSITORY = Path(__file__).resolve().parents[1]
# Flags of local/make_mini_corpus.py for a corpus of a few minutes.
TINY = ["--train", "60", "--dev", "16", "--test", "16", "--speakers-per-voice", "1", "--control", "0.25"]


def environment_in(venv: Path) -> dict[str, str]:
    """Environment variables with which the shell scripts use this Python instead of installing one of their own."""
    (venv / "bin").mkdir(parents=True)
    python = venv / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    # What local/environment.sh sums up: without its stamp it would install.
    content = "".join((REPOSITORY / name).read_text() for name in ("requirements.txt", "setup.py"))
    installed = (REPOSITORY / "pyproject.toml").read_text().partition("[tool")[0]
    stamp = hashlib.sha256(f"{content}{installed}{REPOSITORY} {venv}\n".encode()).hexdigest()
    (venv / ".installed").write_text(stamp + "\n")
    return os.environ | {"TRANSDUCER_GN_VENV": str(venv), "PYTHONPATH": str(REPOSITORY)}


def write_chapter(folder: Path, names: list[str], seconds: float = 1.0) -> None:
    """Write FLAC files of noise and their transcript."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for index, name in enumerate(names):
        draw = np.random.default_rng(int.from_bytes(name.encode(), "little") % 2**32)
        samples = 0.1 * draw.standard_normal(round(16000 * (seconds + 0.1 * index)))
        soundfile.write(folder / f"{name}.flac", samples, 16000)
        lines.append(f"{name} A SENTENCE WITH NUMBER {'ONE TWO THREE'.split()[index % 3]}\n")
    chapter = "-".join(names[0].split("-")[:2])
    (folder / f"{chapter}.trans.txt").write_text("".join(lines))


def tree_bytes(folder: Path, pattern: str = "*") -> dict[str, bytes]:
    """Return the content of all files below a folder that match."""
    files = (file for file in sorted(folder.rglob(pattern)) if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}
