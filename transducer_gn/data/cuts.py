"""Cuts, and what they are made of, as lines of manifests hold them, and what is stored of them.

Whatever is damaged is named, with what to do.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from lhotse import Recording, SupervisionSegment
from lhotse.audio.utils import AudioLoadingError, DurationMismatchError
from lhotse.cut import Cut, MixedCut
from lhotse.cut.data import DataCut
from lhotse.serialization import deserialize_item

from transducer_gn.common.errors import UserError
from transducer_gn.common.typed import typed
from transducer_gn.common.units import SAMPLING_RATE
from transducer_gn.data.manifest_files import read_json_lines

# What lhotse, and the libraries below it, raise for values and files that are none.
FAULTS = (
    *(ValueError, TypeError, LookupError, AttributeError, AssertionError, ArithmeticError),
    *(OSError, EOFError, RuntimeError, AudioLoadingError, DurationMismatchError),
)
# Where manifests may say that sound and features are. lhotse would also run a command, or ask a server.
AUDIO_PLACES = ("file", "memory")
FEATURE_PLACES = {"lilcom_chunky", "lilcom_files", "numpy_files", "memory_lilcom", "memory_raw"}
# Seconds; more is no recording of anything that was said, and would take for ever to be cut into pieces.
LONGEST_RECORDING = 24 * 3600

Item = TypeVar("Item", Recording, SupervisionSegment)


def read_cut(values: dict[str, Any], resolve: Callable[[Cut], Cut] | None = None, is_spoken: bool = True) -> Cut:
    """The cut that a manifest's line holds; ValueError if it holds none.

    Args:
        values: the line
        resolve: completes it, such as by the folder that its paths are relative to
        is_spoken: whether a cut must say what is said in it; noise does not
    """
    try:
        cut = deserialize_item(values)
        check_cut(cut, is_spoken)
        return cut if resolve is None else resolve(cut)
    except FAULTS as error:
        raise ValueError(reason(error)) from error


def check_cut(cut: Cut, is_spoken: bool) -> None:
    """ValueError unless a cut has a name, lasts some time, and has a text, if spoken, and times where it has words."""
    typed(str, cut.id, "its id")
    check_duration(cut.duration)
    if is_spoken and not cut.supervisions:
        raise ValueError("it does not say what is said")
    for part in parts_of(cut):
        if part.recording is not None:
            check_sources(part.recording)
        if part.features is not None and part.features.storage_type not in FEATURE_PLACES:
            raise ValueError(f"its features are not in a file but in {part.features.storage_type!r}")
    for supervision in cut.supervisions:
        typed(str if is_spoken else str | None, supervision.text, "its text")
        for item in (supervision.alignment or {}).get("word", []):
            typed(tuple[str, float, float], [item.symbol, item.start, item.duration], "a word")


def parts_of(cut: Cut) -> list[DataCut]:
    """The cuts that a cut has sound of: itself, or those that are mixed in it."""
    parts = [track.cut for track in cut.tracks] if isinstance(cut, MixedCut) else [cut]
    return [part for part in parts if isinstance(part, DataCut)]


def check_sources(recording: Recording) -> None:
    """ValueError unless the samples of a recording are to come from files or memory."""
    for source in recording.sources:
        if source.type not in AUDIO_PLACES:
            raise ValueError(f"its audio is not in a file but in {source.type!r}")


def check_recording(recording: Recording) -> None:
    """ValueError unless a recording has a name, a place, and a length in samples and in seconds that fit."""
    typed(str, recording.id, "its id")
    check_sources(recording)
    check_duration(recording.duration)
    samples, rate = typed(int, recording.num_samples, "its samples"), typed(int, recording.sampling_rate, "their rate")
    if rate != SAMPLING_RATE or abs(recording.duration * rate - samples) > 1:
        raise ValueError(f"it has {samples} samples, {rate} in a second, and lasts {recording.duration} s")
    if recording.duration > LONGEST_RECORDING:
        raise ValueError(f"it lasts {recording.duration} s, more than a day")


def check_supervision(supervision: SupervisionSegment) -> None:
    """ValueError unless a supervision has names, times and a text."""
    typed(str, supervision.id, "its id")
    typed(str, supervision.recording_id, "its recording")
    typed(float, supervision.start, "its start")
    check_duration(supervision.duration)
    typed(str, supervision.text, "its text")


def read_items(path: Path, kind: type[Item], check: Callable[[Item], None]) -> Iterator[Item]:
    """Yield the recordings or supervisions of a manifest; UserError names the line that holds none."""
    for number, values in enumerate(read_json_lines(path), start=1):
        try:
            item = kind.from_dict(values)
            check(item)
        except FAULTS as error:
            raise UserError(f"{path}, line {number}: {reason(error)}; delete it and run prepare.sh again") from error
        yield item


def check_duration(seconds: Any) -> None:
    """ValueError unless what something lasts is a finite number of seconds above zero."""
    duration = typed(float, seconds, "its duration")
    if not (math.isfinite(duration) and duration > 0):
        raise ValueError(f"it lasts {duration} s")


def name_and_duration(cut: dict[str, Any]) -> tuple[str, Any]:
    """Id and seconds of a cut as a manifest holds it; ValueError if it has none."""
    name: str = typed(str, cut.get("id"), "its id")
    check_duration(cut.get("duration"))
    return name, cut["duration"]


def text_of(cut: dict[str, Any]) -> str:
    """The text of a cut as a manifest holds it; ValueError if it has none."""
    try:
        text: str = typed(str, cut["supervisions"][0]["text"], "its text")
    except (LookupError, TypeError) as error:
        raise ValueError("it does not say what is said") from error
    return text


def stored_features(cut: Cut) -> np.ndarray:
    """Read the features [T, F] of a cut; UserError if they are damaged."""
    try:
        matrix = cut.load_features()
        check_shape(cut, matrix)
    except FAULTS as error:
        archives = archives_of(cut)
        place = f" from {' or '.join(map(str, archives))}" if archives else ""
        raise UserError(
            f"the features of {cut.id} cannot be read{place} ({reason(error)}); {how_to_make_again(archives)}"
        ) from error
    return matrix


def check_shape(cut: Cut, matrix: np.ndarray) -> None:
    """ValueError unless features have the shape that their cut tells; training sees to numbers that are not finite."""
    # Nobody has written down how many frames a mixture has.
    frames = cut.num_frames if isinstance(cut, DataCut) else len(matrix)
    if matrix.shape != (frames, cut.num_features):
        raise ValueError(f"they have shape {matrix.shape}, not {(frames, cut.num_features)}")


def archives_of(cut: Cut) -> list[Path]:
    """The files that hold the features of a cut and of what is mixed into it; none of those that came from Shar."""
    paths = [part.features.storage_path for part in parts_of(cut) if part.features is not None]
    return [Path(path) for path in dict.fromkeys(paths) if path]


def how_to_make_again(archives: Sequence[Path]) -> str:
    """Says what to do about damaged features: those of a shard are computed where its manifest is missing."""
    if not archives:
        return "copy the shards again, or run prepare.sh with --shar again"
    manifests = (
        file
        for path in archives
        for file in (path.with_suffix(".jsonl.gz"), path.parent.with_name(f"cuts_{path.parent.name}.jsonl.gz"))
    )
    return f"delete {' and '.join(map(str, dict.fromkeys(manifests)))}, and run prepare.sh again"


def stored_audio(cut: Cut) -> np.ndarray:
    """Read the samples [N] of a cut; UserError if they are damaged."""
    with named_audio(cut):
        samples: np.ndarray = cut.load_audio()[0]
    return samples


@contextmanager
def named_audio(cut: Cut) -> Iterator[None]:
    """While the block reads the audio of a cut: UserError if it is damaged."""
    try:
        yield
    except FAULTS as error:
        raise UserError(
            f"the audio of {cut.id} cannot be read ({reason(error)}); put the file back that the data was made of, or "
            "make the data again with prepare.sh"
        ) from error


def reason(error: Exception) -> str:
    """An error in a line; to some, lhotse adds how it was called."""
    first = next(iter(str(error).splitlines()), "").rstrip(".")
    return f"{type(error).__name__}: {first}"
