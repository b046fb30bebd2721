"""A pretrained front end on disk, beside the features that it made: its parameters, its standardisation, its record.

prepare.sh reads the published file, takes the standardisation from the training parts, and stores the front end; every
training on these features takes it over from there, and its checkpoints hold it.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from lhotse import MonoCut
from torch import Tensor

from transducer_gn.common.errors import UserError
from transducer_gn.common.files import replace_when_done, write_text
from transducer_gn.common.processes import run_each
from transducer_gn.common.typed import typed
from transducer_gn.common.units import SAMPLING_RATE
from transducer_gn.config import FrontEndConfig
from transducer_gn.data.cuts import stored_audio
from transducer_gn.data.layout import FRONT_END_PARAMETERS, FRONT_END_RECORD
from transducer_gn.data.prepared import PreparedData
from transducer_gn.model.moonshine import MOONSHINE_TINY, MoonshineEncoder
from transducer_gn.model.moonshine_features import MoonshineFeatures, VectorSums
from transducer_gn.model.moonshine_file import read_moonshine_tiny
from transducer_gn.model.transducer import Transducer
from transducer_gn.recognition.checkpoint import load_checkpoint
from transducer_gn.recognition.tensor_files import read_tensors, write_tensors

# So many utterances of the training parts, spread over them, are enough for mean and deviation.
FITTED_UTTERANCES = 300
UTTERANCES_PER_PIECE = 20


class FrontEndExtractor:
    """A front end as those who store features want it."""

    def __init__(self, front_end: MoonshineFeatures) -> None:
        self.name = "moonshine-tiny"
        self.frame_shift = front_end.framing.feature_shift
        self._front_end = front_end

    def extract(self, samples: np.ndarray, sampling_rate: int) -> np.ndarray:
        """The vectors [T, F] of `samples` [1, N]."""
        if sampling_rate != SAMPLING_RATE:
            raise UserError(f"the audio has {sampling_rate} samples per second, not {SAMPLING_RATE}: resample it")
        return self._front_end.compute(torch.from_numpy(samples[0])).numpy()


def read_front_end(config: FrontEndConfig, path: Path) -> tuple[MoonshineFeatures, bool]:
    """A front end from a file, and whether it has its standardisation already.

    Args:
        config: its settings
        path: the published ONNX file, what `store_front_end` has written for other data, or a checkpoint of a system
            with this front end
    """
    if path.suffix == ".pt":
        front_end = MoonshineFeatures(MoonshineEncoder(MOONSHINE_TINY), config)
        read_parameters(front_end, path)
        return front_end, True
    return MoonshineFeatures(read_moonshine_tiny(path), config), False


def fit_front_end(front_end: MoonshineFeatures, cuts: Sequence[MonoCut], data_dir: Path, jobs: int) -> None:
    """Take the standardisation from utterances spread over `cuts`, whose paths are relative to `data_dir`."""
    chosen = list(cuts[:: -(-len(cuts) // FITTED_UTTERANCES)])
    starts = range(0, len(chosen), UTTERANCES_PER_PIECE)
    pieces = [(front_end, chosen[start : start + UTTERANCES_PER_PIECE], data_dir) for start in starts]
    front_end.standardisation.fit(run_each(sums_of, pieces, jobs, "Standardisation (pieces)"))


def sums_of(front_end: MoonshineFeatures, cuts: Sequence[MonoCut], data_dir: Path) -> VectorSums:
    """What some utterances add to the standardisation."""
    torch.set_num_threads(1)
    audio = (torch.from_numpy(stored_audio(cut.with_recording_path_prefix(data_dir))) for cut in cuts)
    first, *others = (front_end.sums(samples) for samples in audio)
    return sum(others, first)


def store_front_end(front_end: MoonshineFeatures, data_dir: Path) -> None:
    """Write parameters and record. What was combined from other features does not count any more."""
    (data_dir / "cuts_train.jsonl.gz").unlink(missing_ok=True)
    with replace_when_done(data_dir / FRONT_END_PARAMETERS) as sibling:
        write_tensors(front_end.state_dict(), sibling)
    write_text(data_dir / FRONT_END_RECORD, json.dumps(front_end.fingerprint(), indent=2) + "\n")


def read_parameters(front_end: MoonshineFeatures, path: Path) -> None:
    """Give a front end the parameters and the standardisation in a file, or in a checkpoint."""
    if not path.is_file():
        raise UserError(f"there is no {path}; run prepare.sh with --front-end moonshine-tiny")
    try:
        found = read_tensors(path)
        parameters = _parameters_of_checkpoint(path) if "format" in found else dict(found)
        front_end.load_state_dict(typed(dict[str, Tensor], parameters))
    except (RuntimeError, ValueError, TypeError) as error:
        raise UserError(
            f"{path} does not hold this front end: it is another file, or of other model.front_end.layers; "
            "run prepare.sh with the settings of this system"
        ) from error


def _parameters_of_checkpoint(path: Path) -> dict[str, Tensor]:
    """The parameters of a system's front end, such as one that was trained along."""
    prefix = "front_end."
    parameters = load_checkpoint(path).model
    return {name.removeprefix(prefix): value for name, value in parameters.items() if name.startswith(prefix)}


def load_front_end(model: Transducer, data: PreparedData) -> None:
    """Give a new model's front end, if it has one, what made the features of prepared data."""
    if model.front_end is not None:
        read_parameters(model.front_end, data.folder / FRONT_END_PARAMETERS)
