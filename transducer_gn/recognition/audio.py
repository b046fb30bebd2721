"""Audio from outside as tensors: samples that are what a recogniser expects, or a sentence that says why not."""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from transducer_gn.common.errors import UserError
from transducer_gn.recognition.samples import checked_samples, file_pieces

AUDIO_SUFFIXES = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".aiff", ".sph")


def check_samples(samples: Tensor | np.ndarray, sampling_rate: int, wanted_rate: int) -> Tensor:
    """Mono samples [n] as floats between -1 and 1; 16-bit integers are scaled. Any number of them, also none."""
    if isinstance(samples, Tensor):
        # Half precision is more than numpy knows.
        samples = (samples.float() if samples.dtype.is_floating_point else samples).detach().cpu().numpy()
    return torch.from_numpy(checked_samples(np.asarray(samples), sampling_rate, wanted_rate))


def read_pieces(path: Path, wanted_rate: int, piece: int) -> Iterator[Tensor]:
    """The samples of a file in pieces of `piece` samples; UserError if it is no mono audio of the wanted rate."""
    for samples in file_pieces(path, wanted_rate, piece):
        yield torch.from_numpy(samples)


def read_raw_pieces(stream: BinaryIO, piece: int) -> Iterator[Tensor]:
    """Samples from raw PCM (mono, 16 bits, little-endian) as they arrive, at most `piece` at a time."""
    rest = b""
    # Pipes give what they have, instead of waiting for all that was asked for.
    read = getattr(stream, "read1", stream.read)
    while data := read(2 * piece):
        data = rest + data
        even = len(data) // 2 * 2
        rest = data[even:]
        if even:
            yield check_samples(np.frombuffer(data[:even], dtype="<i2").copy(), 0, 0)
    if rest:
        raise UserError("standard input ends in the middle of a sample: it must be raw 16-bit mono PCM")


def audio_files(paths: list[Path]) -> list[Path]:
    """The files among `paths`, and the audio files anywhere in the folders among them, in order of name."""
    files = []
    for path in paths:
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if file.suffix.lower() in AUDIO_SUFFIXES)
            if not inside:
                raise UserError(f"{path}: the folder contains no audio ({', '.join(AUDIO_SUFFIXES)})")
            files += inside
        else:
            files.append(path)
    return files
