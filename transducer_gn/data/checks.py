"""Bad audio, found before anything is made of it, and the list of what is bad."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soundfile

from transducer_gn.common.errors import UserError
from transducer_gn.common.files import write_text
from transducer_gn.common.processes import run_each
from transducer_gn.common.units import SAMPLING_RATE
from transducer_gn.data.layout import Problem, Utterance

# A recording whose largest sample stays below this holds nothing but silence (-80 dB).
SILENT_BELOW = 1e-4
MOST_SAMPLES = 2**40
# Samples that are decoded at a time.
PIECE = 1 << 20
UTTERANCES_PER_TASK = 500
SHOWN_PROBLEMS = 20


def check_audio(path: Path) -> tuple[int, str | None]:
    """Return a recording's number of samples, and what is wrong with it, if anything.

    The whole file is decoded: the header of a truncated file looks perfectly well.
    """
    if path.stat().st_size == 0:
        return 0, "the file is empty"
    try:
        with soundfile.SoundFile(path) as file:
            promised, rate, channels = file.frames, file.samplerate, file.channels
            # FLAC says zero for a length that it does not know, and libsndfile makes that the largest there is.
            if promised > MOST_SAMPLES:
                return 0, "zero length, or the header does not say how long it is"
            count, peak = _decode(file)
    except (soundfile.LibsndfileError, RuntimeError) as error:
        return 0, f"the audio cannot be read, it is truncated or not FLAC ({str(error).rstrip('.')})"
    return count, audio_fault(count, peak, promised, rate, channels)


def _decode(file: soundfile.SoundFile) -> tuple[int, float]:
    """Number of samples, and the largest; piece by piece, since a header can promise more than there is memory."""
    count, peak = 0, 0.0
    while len(piece := file.read(PIECE, dtype="float32")):
        count += len(piece)
        peak = float(np.maximum(peak, np.abs(piece).max()))
    return count, peak


def audio_fault(count: int, peak: float, promised: int, rate: int, channels: int) -> str | None:
    """Return what is wrong with decoded audio, or None.

    Args:
        count: number of samples
        peak: the largest of them, whatever its sign
        promised: number of samples that the header tells of
        rate: samples per second
        channels: how many there are
    """
    if rate != SAMPLING_RATE:
        return f"sampling rate {rate} Hz instead of {SAMPLING_RATE} Hz"
    if channels != 1:
        return f"{channels} channels instead of one"
    if count == 0:
        return "no samples (zero length)"
    if count < promised:
        return f"truncated: {count} of {promised} samples"
    if not np.isfinite(peak):
        return "samples that are NaN or infinite"
    if peak < SILENT_BELOW:
        return "silent"
    return None


def check_all_audio(
    utterances: Sequence[Utterance], jobs: int, label: str
) -> tuple[list[tuple[Utterance, int]], list[Problem]]:
    """Decode all recordings; return the good ones with their numbers of samples, and the problems of the others."""
    tasks = [
        ([utterance.audio for utterance in utterances[start : start + UTTERANCES_PER_TASK]],)
        for start in range(0, len(utterances), UTTERANCES_PER_TASK)
    ]
    results = [result for task in run_each(check_many, tasks, jobs, label) for result in task]
    good, problems = [], []
    for utterance, (samples, fault) in zip(utterances, results, strict=True):
        if fault is None:
            good.append((utterance, samples))
        else:
            problems.append(Problem(str(utterance.audio), fault))
    return good, problems


def check_many(paths: Sequence[Path]) -> list[tuple[int, str | None]]:
    """Check several recordings."""
    return [check_audio(path) for path in paths]


def report_problems(problems: Sequence[Problem], path: Path, skip_bad: bool) -> None:
    """Write the list of bad input to `path`; stop with it unless it may be skipped."""
    if not problems:
        path.unlink(missing_ok=True)
        return
    write_problems(problems, path)
    if not skip_bad:
        sentence = f"{len(problems)} bad utterances; repair them, or leave them out with --skip-bad:"
        raise UserError(f"{sentence}\n{first_problems(problems, path)}")
    tell_left_out(problems, path)


def write_problems(problems: Sequence[Problem], path: Path) -> None:
    """Write the list of bad input."""
    write_text(path, "".join(f"{problem}\n" for problem in problems))


def tell_left_out(problems: Sequence[Problem], path: Path) -> None:
    """Say which input was left out, and that `path` lists it."""
    print(f"Left out {len(problems)} bad utterances (listed in {path}):\n{first_problems(problems, path)}")


def first_problems(problems: Sequence[Problem], path: Path) -> str:
    """A line for each of the first, and how many more `path` lists."""
    shown = "\n".join(f"  {problem}" for problem in problems[:SHOWN_PROBLEMS])
    if len(problems) > SHOWN_PROBLEMS:
        shown += f"\n  ... and {len(problems) - SHOWN_PROBLEMS} more, all in {path}"
    return shown
