"""Audio for exported systems, and such systems."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
from small_systems import moonshine_model, moonshine_model_config, small_tokenizer, write_checkpoint, write_model

import transducer_gn
from transducer_gn.config import RecognitionConfig
from transducer_gn.export.write import export_system
from transducer_gn.recognition.system import System

RATE = 16000


def small_system(folder: Path, alpha: float = 0.3) -> System:
    """A tiny system with random weights, between local and global normalisation.

    It is shaken no more than so that rounding errors stay far below the distances between hypotheses.
    """
    write_checkpoint(folder / "epoch-1.pt", shake=0.2)
    return replace(transducer_gn.load(folder / "epoch-1.pt"), alpha=alpha)


def moonshine_system(folder: Path, **front_end: object) -> System:
    """The same on a pretrained front end of random weights."""
    config = moonshine_model_config(**front_end)
    write_model(folder / "epoch-1.pt", config, moonshine_model(config), small_tokenizer(), shake=0.2)
    return transducer_gn.load(folder / "epoch-1.pt")


def exported(system: System, folder: Path, **settings: int) -> Path:
    """The folder, with the system exported to it in both precisions."""
    export_system(system, folder, RecognitionConfig(**settings), int8=True)
    return folder


def tones(seed: int, samples: int) -> np.ndarray:
    """Tones that change a few times a second, and noise."""
    draw = np.random.default_rng(seed)
    pitches = 100 * 2 ** (4 * draw.random(samples // 3000 + 1))
    phase = np.cumsum(np.repeat(pitches, 3000)[:samples] / RATE)
    return (0.3 * np.sin(2 * math.pi * phase) + 0.02 * draw.standard_normal(samples)).astype(np.float32)
