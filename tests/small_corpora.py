"""Small corpora for tests, and comparison of folders."""

from pathlib import Path

import numpy as np
import soundfile

REPOSITORY = Path(__file__).resolve().parents[1]
# Flags of local/make_mini_corpus.py for a corpus of a few minutes.
TINY = ["--train", "60", "--dev", "16", "--test", "16", "--speakers-per-voice", "1", "--control", "0.25"]


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
