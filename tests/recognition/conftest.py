"""A tiny system with random weights on disk, and recordings for it."""

import math
from pathlib import Path

import numpy as np
import pytest
import soundfile
from small_systems import write_checkpoint

RATE = 16000


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory) -> Path:
    """A checkpoint of a tiny model with random weights."""
    path = tmp_path_factory.mktemp("trained") / "epoch-1.pt"
    write_checkpoint(path)
    return path


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """Two recordings, 16-bit."""
    folder = tmp_path_factory.mktemp("audio")
    for number, seconds in enumerate((1.3, 2.1)):
        t = np.arange(int(seconds * RATE)) / RATE
        audio = 0.4 * np.sin(2 * math.pi * (200 + 150 * number) * t * (1 + 0.3 * t))
        soundfile.write(folder / f"{number}.wav", audio.astype(np.float32), RATE, subtype="PCM_16")
    return folder
