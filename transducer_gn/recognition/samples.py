"""Audio from outside as arrays: samples that are what a recogniser expects, or a sentence that says why not.

Nothing here needs torch; `audio` gives the same as tensors.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import soundfile

from transducer_gn.common.errors import UserError

# Beyond this, samples cannot be a recording scaled to [-1, 1] that was merely a little too loud.
LARGEST = 8.0


def checked_samples(samples: np.ndarray, sampling_rate: int, wanted_rate: int) -> np.ndarray:
    """Mono samples [n] as floats between -1 and 1; 16-bit integers are scaled. Any number of them, also none."""
    if sampling_rate != wanted_rate:
        raise UserError(
            f"the audio has {sampling_rate} samples per second, but the model needs {wanted_rate}: resample it"
        )
    if samples.ndim != 1:
        raise UserError(
            f"the audio must be mono, samples in one dimension; it has the shape {list(samples.shape)}: "
            "choose a channel or average them"
        )
    if samples.dtype == np.int16:
        return samples.astype(np.float32) / np.float32(32768)
    if samples.dtype.kind != "f":
        raise UserError(f"the audio must be floats between -1 and 1 or 16-bit integers, not {samples.dtype}")
    samples = samples.astype(np.float32)
    if not np.isfinite(samples).all():
        raise UserError("the audio contains samples that are NaN or infinite")
    if len(samples) and np.abs(samples).max() > LARGEST:
        raise UserError(f"the audio reaches {np.abs(samples).max():.0f}; scale it to lie between -1 and 1")
    return samples


def file_pieces(path: Path, wanted_rate: int, piece: int) -> Iterator[np.ndarray]:
    """The samples of a file in pieces of `piece` samples; UserError if it is no mono audio of the wanted rate."""
    if not path.is_file():
        raise UserError(f"{path}: there is no such file")
    try:
        with soundfile.SoundFile(path) as file:
            if file.channels != 1:
                raise UserError(f"{path}: the audio has {file.channels} channels; choose one or average them")
            # Not `blocks`, which wants to know beforehand how much there is; and what a header says may be wrong.
            heard = 0
            while len(block := file.read(piece, dtype="float32")):
                heard += len(block)
                try:
                    yield checked_samples(block, file.samplerate, wanted_rate)
                except UserError as error:
                    raise UserError(f"{path}: {error}") from None
            if heard == 0:
                raise UserError(f"{path}: the file contains no audio")
    except soundfile.LibsndfileError as error:
        raise UserError(f"{path}: this cannot be read as audio ({error.error_string})") from None
