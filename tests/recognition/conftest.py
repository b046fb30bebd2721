"""A tiny system with random weights on disk, and recordings for it."""

import math
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from transducer_gn.config import Config, EncoderConfig, JoinerConfig, ModelConfig, PredictorConfig, StreamingConfig
from transducer_gn.data.tokenizer import train_tokenizer
from transducer_gn.model.transducer import build_model
from transducer_gn.recognition.averaging import RunningAverage
from transducer_gn.recognition.checkpoint import Checkpoint, Progress, TrainingState

RATE = 16000


def write_checkpoint(path: Path, causal: bool = True) -> None:
    """Write the checkpoint of a tiny model; one that is not causal looks ahead and has no chunks."""
    torch.manual_seed(3)
    tokenizer = train_tokenizer(["THE CAT SAT ON THE MAT", "A DOG BIT THE CAT"] * 20, 22)
    model_config = ModelConfig(
        vocab_size=tokenizer.vocab_size,
        encoder=EncoderConfig(dim=16, attention_dim=16, heads=2, feedforward_dim=24, layers=2, kernel=7, causal=causal),
        streaming=StreamingConfig(chunk=4, left_context=8)
        if causal
        else StreamingConfig(dynamic_chunks=False, chunk=None, left_context=None),
        predictor=PredictorConfig(embedding_dim=8, dim=12, layers=1),
        joiner=JoinerConfig(dim=16),
    )
    model = build_model(model_config)
    with torch.no_grad():
        model.joiner.output.bias.value[0] += 2.5
    checkpoint = Checkpoint(
        config=Config(model=model_config),
        progress=Progress(epoch=1),
        model=model.state_dict(),
        average=RunningAverage(model).state_dict(),
        tokenizer=tokenizer.model,
        training=TrainingState({}, {}, {}, {}, {}, [], []),
    )
    checkpoint.save(path)


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
