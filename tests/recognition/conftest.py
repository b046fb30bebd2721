"""A tiny system with random weights on disk, and recordings for it."""

import math
from pathlib import Path

import numpy as np
import pytest
import soundfile
from small_systems import moonshine_model_config, write_checkpoint, write_moonshine_checkpoint

from transducer_gn.config import ModelConfig

RATE = 16000


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory) -> Path:
    """A checkpoint of a tiny model with random weights."""
    path = tmp_path_factory.mktemp("trained") / "epoch-1.pt"
    write_checkpoint(path)
    return path


@pytest.fixture(scope="session")
def moonshine_config() -> ModelConfig:
    """Settings of a tiny model on a pretrained front end."""
    return moonshine_model_config()


@pytest.fixture(scope="session", params=[0, 160])
def moonshine_checkpoint(request, tmp_path_factory) -> Path:
    """A checkpoint of a tiny model on a pretrained front end that sees nothing to the right, and one that does."""
    path = tmp_path_factory.mktemp("moonshine") / "epoch-1.pt"
    write_moonshine_checkpoint(path, right=request.param)
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
