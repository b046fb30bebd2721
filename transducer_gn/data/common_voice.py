"""Common Voice in LibriSpeech's layout: of a table of sentences and their clips, a part with transcripts and FLAC."""

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from scipy.signal import resample_poly

from transducer_gn.common.errors import UserError
from transducer_gn.common.files import folder_when_done, write_text
from transducer_gn.common.processes import run_each
from transducer_gn.common.units import SAMPLING_RATE
from transducer_gn.data.checks import tell_left_out, write_problems
from transducer_gn.data.layout import Problem
from transducer_gn.data.spelling import transcript_words

COLUMNS = ("client_id", "path", "sentence")
UNSPOKEN = re.compile('[-\u2013\u2014.,;:!?"\u201c\u201d()\u2026/]')
# Speakers are numbered from here on, beyond all of LibriSpeech's.
FIRST_SPEAKER = 900_000
# Seconds that a clip must exceed, and stay below.
SHORTEST, LONGEST = 1, 20
# Samples per second, and channels, beyond which nobody records speech.
LOWEST_RATE, HIGHEST_RATE = 4000, 192_000
MOST_CHANNELS = 8
# Nobody reads faster: such a clip was cut off.
MOST_CHARACTERS_PER_SECOND = 30
CLIPS_PER_TASK = 100
LEFT_OUT = "left_out.txt"


@dataclass(frozen=True)
class Clip:
    """A line of the table.

    Attributes:
        place: of the line, for whoever has to look
        speaker: as the table names who reads
        text: as transcripts are written
    """

    place: str
    speaker: str
    audio: Path
    text: str


@dataclass(frozen=True)
class Imported:
    """What a part was made of: how much there is of it."""

    clips: int
    speakers: int
    seconds: float


def import_common_voice(table: Path, clips: Path, part: Path, jobs: int, record: tuple[str, str]) -> Imported:
    """Write the part that a table and a folder of clips make; single clips that are bad are left out and listed.

    The part appears when it is complete. The result does not depend on the number of jobs.

    Args:
        record: name and content of a file to be put into the part, too
    """
    wanted, problems = read_table(table, clips)
    with folder_when_done(part.absolute()) as partial:
        tasks = [
            (wanted[start : start + CLIPS_PER_TASK], start, partial) for start in range(0, len(wanted), CLIPS_PER_TASK)
        ]
        outcomes = [outcome for task in run_each(convert_clips, tasks, jobs, "Converting clips") for outcome in task]
        faults = {number: fault for number, fault in enumerate(outcomes) if isinstance(fault, str)}
        kept = {number: clip for number, clip in enumerate(wanted) if number not in faults}
        problems += [Problem(wanted[number].place, fault) for number, fault in faults.items()]
        if not kept:
            raise UserError(
                f"none of the {len(problems)} clips of {table} can be used; does --clips {clips} name their folder? "
                f"The first is {problems[0]}"
            )
        speakers = arrange(kept, partial)
        write_text(partial / record[0], record[1])
        if problems:
            write_problems(problems, partial / LEFT_OUT)
    if problems:
        tell_left_out(problems, part / LEFT_OUT)
    return Imported(len(kept), speakers, sum(outcome for outcome in outcomes if not isinstance(outcome, str)))


def read_table(table: Path, clips: Path) -> tuple[list[Clip], list[Problem]]:
    """The clips of a table whose sentences can be written as transcripts are, and what is wrong with the others."""
    wanted, problems = [], []
    try:
        # Common Voice does not quote: a quotation mark belongs to the sentence.
        with table.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            if missing := [name for name in COLUMNS if name not in (rows.fieldnames or ())]:
                raise UserError(
                    f"{table} has no column {missing[0]!r}; --table wants a table of Common Voice such as "
                    f"validated.tsv, with the columns {', '.join(COLUMNS)} and tabs between them"
                )
            for row in rows:
                speaker, name, sentence = (row[column] for column in COLUMNS)
                place = f"{table}, line {rows.line_num}, {name}"
                words = transcript_words(sentence or "", UNSPOKEN)
                if not (speaker and name and sentence):
                    problems.append(Problem(place, f"without {', '.join(x for x in COLUMNS if not row[x])}"))
                elif not words:
                    problems.append(Problem(place, f"no sentence of English words alone: {sentence}"))
                else:
                    wanted.append(Clip(place, speaker, clips / name, " ".join(words)))
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{table} is no table of UTF-8 text ({error}); get it anew from Common Voice") from None
    if not wanted and not problems:
        raise UserError(f"{table} has no line below its heading; get it anew from Common Voice")
    return wanted, problems


def convert_clips(clips: Sequence[Clip], first: int, folder: Path) -> list[float | str]:
    """Write the good ones of some clips as FLAC, named by their numbers; return seconds, or what is wrong, of each."""
    outcomes: list[float | str] = []
    for number, clip in enumerate(clips, start=first):
        try:
            samples = read_clip(clip.audio)
        except ValueError as error:
            outcomes.append(str(error))
            continue
        seconds = len(samples) / SAMPLING_RATE
        fault = duration_fault(seconds, clip.text)
        if fault is None:
            (folder / f"{number}.flac").write_bytes(flac_bytes(samples))
        outcomes.append(fault or seconds)
    return outcomes


def read_clip(path: Path) -> np.ndarray:
    """The samples [n] of a recording of any rate and format, its channels averaged; ValueError if there are none."""
    try:
        is_there = path.is_file()
    except OSError as error:
        raise ValueError(f"no file can be called so ({error.strerror})") from None
    if not is_there:
        raise ValueError(f"there is no {path}")
    try:
        with soundfile.SoundFile(path) as file:
            rate = file.samplerate
            # A header can promise more than there is memory for.
            if problem := header_fault(file.frames, rate, file.channels):
                raise ValueError(problem)
            samples = file.read(dtype="float32")
    except (soundfile.LibsndfileError, RuntimeError) as error:
        raise ValueError(f"the audio cannot be read ({str(error).rstrip('.')})") from None
    if not len(samples):
        raise ValueError("no samples (zero length)")
    if not np.isfinite(samples).all():
        raise ValueError("samples that are NaN or infinite")
    if samples.ndim > 1:
        samples = samples.mean(1)
    if rate != SAMPLING_RATE:
        common = math.gcd(SAMPLING_RATE, rate)
        samples = resample_poly(samples, SAMPLING_RATE // common, rate // common)
    return samples


def header_fault(frames: int, rate: int, channels: int) -> str | None:
    """What is wrong with the size of a recording as its header tells it, or None."""
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        return f"{rate} samples per second, not between {LOWEST_RATE} and {HIGHEST_RATE}"
    if channels > MOST_CHANNELS:
        return f"{channels} channels, more than {MOST_CHANNELS}"
    if frames >= LONGEST * rate:
        return f"{frames / rate:.1f} s, not between {SHORTEST} and {LONGEST}"
    return None


def duration_fault(seconds: float, text: str) -> str | None:
    """What is wrong with so much audio for a text, or None."""
    if not SHORTEST < seconds < LONGEST:
        return f"{seconds:.1f} s, not between {SHORTEST} and {LONGEST}"
    if len(text) / seconds > MOST_CHARACTERS_PER_SECOND:
        return f"{seconds:.1f} s for {len(text)} characters, more than {MOST_CHARACTERS_PER_SECOND} in a second"
    return None


def flac_bytes(samples: np.ndarray) -> bytes:
    """Encode samples [n]; resampled, they may be a little above 1."""
    buffer = io.BytesIO()
    soundfile.write(buffer, np.clip(samples, -1, 1), SAMPLING_RATE, format="FLAC", subtype="PCM_16")
    return buffer.getvalue()


def arrange(clips: dict[int, Clip], folder: Path) -> int:
    """Move FLAC files, named by the clips' numbers, to SPEAKER/1/, and write transcripts; return how many speakers.

    Speakers have numbers in the order in which they first appear, and so have the clips of each.
    """
    of_speaker: dict[str, list[int]] = {}
    for number, clip in clips.items():
        of_speaker.setdefault(clip.speaker, []).append(number)
    transcripts = {}
    for speaker, numbers in enumerate(of_speaker.values(), start=FIRST_SPEAKER):
        chapter = folder / str(speaker) / "1"
        chapter.mkdir(parents=True)
        names = [f"{speaker}-1-{index:04d}" for index in range(len(numbers))]
        for number, name in zip(numbers, names, strict=True):
            (folder / f"{number}.flac").rename(chapter / f"{name}.flac")
        lines = (f"{name} {clips[number].text}\n" for number, name in zip(numbers, names, strict=True))
        transcripts[chapter / f"{speaker}-1.trans.txt"] = "".join(lines)
    # Last: a folder without them is taken for no part.
    for path, transcript in transcripts.items():
        path.write_text(transcript)
    return len(transcripts)
