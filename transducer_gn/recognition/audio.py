"""Audio from outside: samples that are what a recogniser expects, or a sentence that says why not."""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import soundfile
import torch
from torch import Tensor

from transducer_gn.common.errors import UserError

# Beyond this, samples cannot be a recording scaled to [-1, 1] that was merely a little too loud.
LARGEST = 8.0
AUDIO_SUFFIXES = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".aiff", ".sph")


def check_samples(samples: Tensor | np.ndarray, sampling_rate: int, wanted_rate: int) -> Tensor:
    """Mono samples [n] as floats between -1 and 1; 16-bit integers are scaled. Any number of them, also none."""
    samples = torch.as_tensor(samples)
    if sampling_rate != wanted_rate:
        raise UserError(
            f"the audio has {sampling_rate} samples per second, but the model needs {wanted_rate}: resample it"
        )
    if samples.dim() != 1:
        raise UserError(
            f"the audio must be mono, samples in one dimension; it has the shape {list(samples.shape)}: "
            "choose a channel or average them"
        )
    if samples.dtype == torch.int16:
        return samples.float() / 32768
    if not samples.dtype.is_floating_point:
        raise UserError(f"the audio must be floats between -1 and 1 or 16-bit integers, not {samples.dtype}")
    samples = samples.float()
    if not samples.isfinite().all():
        raise UserError("the audio contains samples that are NaN or infinite")
    if len(samples) and samples.abs().max() > LARGEST:
        raise UserError(f"the audio reaches {samples.abs().max():.0f}; scale it to lie between -1 and 1")
    return samples


def read_pieces(path: Path, wanted_rate: int, piece: int) -> Iterator[Tensor]:
    """The samples of a file in pieces of `piece` samples; UserError if it is no mono audio of the wanted rate."""
    if not path.is_file():
        raise UserError(f"{path}: there is no such file")
    try:
        with soundfile.SoundFile(path) as file:
            if file.channels != 1:
                raise UserError(f"{path}: the audio has {file.channels} channels; choose one or average them")
            if file.frames == 0:
                raise UserError(f"{path}: the file contains no audio")
            for block in file.blocks(piece, dtype="float32"):
                try:
                    yield check_samples(block.copy(), file.samplerate, wanted_rate)
                except UserError as error:
                    raise UserError(f"{path}: {error}") from None
    except soundfile.LibsndfileError as error:
        raise UserError(f"{path}: this cannot be read as audio ({error.error_string})") from None


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
