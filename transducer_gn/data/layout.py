"""Corpora in LibriSpeech's layout: PART/SPEAKER/CHAPTER/ with FLAC files and a SPEAKER-CHAPTER.trans.txt.

And the places of what prepare.sh makes of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transducer_gn.common.errors import UserError
from transducer_gn.common.json_files import parse_json, read_json
from transducer_gn.common.typed import typed

ROLES = ("train", "dev", "test")
# What a front end other than filter banks says about its features, and its parameters.
FRONT_END_RECORD = "front_end.json"
FRONT_END_PARAMETERS = "front_end.pt"
FILTER_BANKS_RECORD = {"front_end": "filter-banks"}


@dataclass(frozen=True)
class Utterance:
    """One line of a transcript with its audio file.

    Attributes:
        words: (word, start, duration) in seconds where the corpus has alignments
        custom: what a `.kinds.jsonl` beside the transcript says about the utterance, see `labels`
    """

    id: str
    speaker: str
    audio: Path
    text: str
    words: tuple[tuple[str, float, float], ...] = ()
    custom: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Problem:
    """Something wrong with one utterance: where, and what."""

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


def find_parts(root: Path) -> list[str]:
    """Return the names of the folders in `root` that hold transcripts."""
    if not root.is_dir():
        raise UserError(f"there is no folder {root}; name the corpus with --corpus or --dl-dir")
    parts = [folder.name for folder in sorted(root.iterdir()) if folder.is_dir() and any(folder.rglob("*.trans.txt"))]
    if not parts:
        raise UserError(
            f"{root} holds no corpus in LibriSpeech's layout: there is no PART/SPEAKER/CHAPTER/*.trans.txt below it"
        )
    return parts


def assign_roles(parts: Sequence[str], chosen: dict[str, Sequence[str]]) -> dict[str, list[str]]:
    """Say which parts are for training, dev and test: as `chosen` names them, otherwise by the start of their names."""
    for role, names in chosen.items():
        unknown = [name for name in names if name not in parts]
        if unknown:
            raise UserError(f"--{role} names the part {unknown[0]!r}, but the corpus has only {', '.join(parts)}")
    taken = {name for names in chosen.values() for name in names}
    roles = {
        role: list(chosen.get(role) or (part for part in parts if part.startswith(role) and part not in taken))
        for role in ROLES
    }
    if not roles["train"]:
        raise UserError(f"none of the parts {', '.join(parts)} starts with train; name the training parts with --train")
    return roles


def read_roles(data_dir: Path) -> dict[str, list[str]]:
    """Return which parts of a prepared folder are for training, dev and test."""
    path = data_dir / "parts.json"
    if not path.is_file():
        raise UserError(f"{data_dir} holds no prepared data (no parts.json); run ./prepare.sh from stage 1")
    try:
        roles = read_json(path, dict[str, list[str]])
    except ValueError as error:
        raise UserError(f"{path} does not say which parts there are: {error}; run ./prepare.sh from stage 1") from error
    return {role: roles.get(role, []) for role in ROLES}


def features_folder(data_dir: Path) -> Path:
    """Return where a prepared folder has its features."""
    return data_dir / ("features" if (data_dir / FRONT_END_RECORD).is_file() else "fbank")


def part_manifest(data_dir: Path, part: str) -> Path:
    """Return the path of a part's cut manifest."""
    return features_folder(data_dir) / f"cuts_{part}.jsonl.gz"


def part_files(root: Path, part: str) -> list[Path]:
    """Return all files of a part that matter, sorted."""
    suffixes = (".flac", ".trans.txt", ".alignment.txt", ".kinds.jsonl")
    return sorted(file for file in (root / part).rglob("*") if file.name.endswith(suffixes))


def read_part(root: Path, part: str) -> tuple[list[Utterance], list[Problem]]:
    """Read a part's transcripts; return its utterances sorted by id, and what is wrong with those left out.

    Audio is not opened here.
    """
    files = part_files(root, part)
    audio = {file.stem: file for file in files if file.suffix == ".flac"}
    utterances: dict[str, Utterance] = {}
    problems, named = [], set()
    for transcript in (file for file in files if file.name.endswith(".trans.txt")):
        words = read_alignments(sibling(transcript, "alignment.txt"))
        custom = read_custom(sibling(transcript, "kinds.jsonl"))
        for number, line in enumerate(read_text_lines(transcript), start=1):
            name, _, text = line.strip().partition(" ")
            if not name:
                continue
            place = f"{transcript}, line {number}, utterance {name}"
            named.add(name)
            if name in utterances:
                problems.append(Problem(place, "duplicate utterance id"))
            elif not text.strip():
                problems.append(Problem(place, "empty transcript"))
            elif name not in audio:
                problems.append(Problem(place, f"there is no {name}.flac in this part"))
            else:
                speaker, text = name.split("-")[0], " ".join(text.split())
                extras = words.get(name, ()), custom.get(name, {})
                utterances[name] = Utterance(name, speaker, audio[name], text, *extras)
    problems += [Problem(str(audio[name]), "missing transcript") for name in sorted(set(audio) - named)]
    return sorted(utterances.values(), key=lambda utterance: utterance.id), problems


def sibling(transcript: Path, suffix: str) -> Path:
    """Return the file with another suffix beside SPEAKER-CHAPTER.trans.txt."""
    return transcript.with_name(transcript.name.removesuffix("trans.txt") + suffix)


def read_text_lines(path: Path) -> list[str]:
    """Return the lines of a UTF-8 file."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start}); convert it") from None


def read_alignments(path: Path) -> dict[str, tuple[tuple[str, float, float], ...]]:
    """Read word times in the format of the published LibriSpeech alignments; silences are left out.

    A line is `ID ",WORD,,WORD," "END,END,END,..."`: words, empty for silences, and the end of each in seconds.
    """
    if not path.is_file():
        return {}
    alignments = {}
    for number, line in enumerate(read_text_lines(path), start=1):
        try:
            name, word_list, end_list = line.split()
            ends = [0.0, *map(float, end_list.strip('"').split(","))]
            words = word_list.strip('"').split(",")
        except ValueError:
            raise UserError(f"{path}, line {number} is not an alignment; repair or delete the file") from None
        alignments[name] = tuple(
            (word, start, round(end - start, 8))
            for word, start, end in zip(words, ends, ends[1:], strict=False)
            if word
        )
    return alignments


def read_custom(path: Path) -> dict[str, dict[str, Any]]:
    """Read what a `.kinds.jsonl` file says about each utterance."""
    if not path.is_file():
        return {}
    custom = {}
    for number, line in enumerate(read_text_lines(path), start=1):
        try:
            entry = parse_json(line, dict[str, Any])
            custom[typed(str, entry.pop("id"))] = entry
        except (ValueError, KeyError):
            raise UserError(f"{path}, line {number} is not a JSON object with an id; repair or delete it") from None
    return custom
