"""The mini corpus on disk, in LibriSpeech's layout: PART/SPEAKER/CHAPTER/SPEAKER-CHAPTER-NUMBER.flac and transcripts.

Beside each chapter's `.trans.txt` stand an `.alignment.txt` with the times of all words, in the format in which
LibriSpeech's alignments are published, and a `.kinds.jsonl` with what each sentence is: see `sentences.py`.
"""

import io
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from transducer_gn.common.errors import UserError
from transducer_gn.common.files import folder_when_done, remove_partial_folder, write_text
from transducer_gn.common.processes import run_each
from transducer_gn.common.seeds import stable_seed
from transducer_gn.common.stages import made_from
from transducer_gn.common.units import SAMPLING_RATE
from transducer_gn.config import MiniCorpusConfig
from transducer_gn.synthetic.espeak import Espeak, voice_gender
from transducer_gn.synthetic.sentences import Sentence, draw_sentences
from transducer_gn.synthetic.speakers import Speaker, speakers_of
from transducer_gn.synthetic.waveform import Spoken, speak

PARTS = ("train", "dev", "test")
SMALLEST_CHAPTER = 16
LARGEST_CHAPTER = 100
# Measured over the default corpus; `hours` uses it to choose the number of sentences.
MEAN_SECONDS = 2.52


@dataclass(frozen=True)
class Chapter:
    """The unit of work: some sentences of one speaker, spoken in one process."""

    part: str
    speaker: Speaker
    number: int
    sentences: int

    @property
    def name(self) -> str:
        """The beginning of its files' names."""
        return f"{self.speaker.id}-{self.number}"

    def folder(self, root: Path) -> Path:
        """Return where it lies in a corpus."""
        return root / part_name(self.part) / self.speaker.id / str(self.number)


def part_name(part: str) -> str:
    """Return the folder of "train", "dev" or "test"."""
    return f"{part}-mini"


def plan_chapters(settings: MiniCorpusConfig) -> list[Chapter]:
    """Share the sentences of each part evenly among its speakers, in chapters of 16 to 100."""
    chapters = []
    for part in PARTS:
        total = getattr(settings, part)
        # In a tiny corpus not everybody gets a word in: twins need a chapter that holds both.
        speakers = speakers_of(part, settings.speakers_per_voice, settings.seed)[: max(1, total // SMALLEST_CHAPTER)]
        for speaker, count in zip(speakers, shares(total, len(speakers)), strict=True):
            sizes = shares(count, -(-count // LARGEST_CHAPTER))
            chapters += [Chapter(part, speaker, number, size) for number, size in enumerate(sizes, start=1)]
    return chapters


def shares(total: int, among: int) -> list[int]:
    """Split `total` into `among` numbers that differ by at most one."""
    return [total // among + (index < total % among) for index in range(among)]


def speak_chapter(chapter: Chapter, settings: MiniCorpusConfig) -> list[Spoken]:
    """Return the chapter's sentences with their audio, in the order in which they are numbered."""
    identity = ("chapter", settings.seed, chapter.part, chapter.name)
    draw = random.Random(stable_seed(*identity, "text"))
    control = settings.control if chapter.part != "train" else 0.0
    sentences = draw_sentences(chapter.sentences, settings.ambiguous, control, draw, settings.distances)
    espeak = Espeak(chapter.speaker.voice)
    spoken: dict[int, Spoken] = {}
    for group in twin_groups(sentences):
        draw = random.Random(stable_seed(*identity, "audio", group[0]))
        together = speak([sentences[i] for i in group], chapter.speaker, espeak, draw)
        spoken.update(zip(group, together, strict=True))
    return [spoken[index] for index in range(len(sentences))]


def twin_groups(sentences: list[Sentence]) -> list[list[int]]:
    """Return positions of sentences that are spoken together: both twins, or one alone."""
    groups: dict[object, list[int]] = {}
    for index, sentence in enumerate(sentences):
        groups.setdefault(("alone", index) if sentence.twin is None else sentence.twin, []).append(index)
    return list(groups.values())


def describe(utterance: str, spoken: Spoken, twin: str | None) -> dict[str, Any]:
    """Return what the `.kinds.jsonl` line of an utterance says."""
    sentence = spoken.sentence
    line: dict[str, Any] = {"id": utterance, "kind": sentence.kind}
    if sentence.pair is not None and sentence.blended is not None:
        line |= {"pair": list(sentence.pair.words), "twin": twin, "blend": list(spoken.times[sentence.blended])}
    if sentence.settling is not None:
        line["settling"] = list(spoken.times[sentence.settling])
    return line


def alignment_line(utterance: str, spoken: Spoken) -> str:
    """Return the utterance's words, silences as empty words, and the end of each, as LibriSpeech's alignments do."""
    words, ends, position = [], [], 0.0
    total = len(spoken.samples) / SAMPLING_RATE
    for word, (start, end) in zip(spoken.sentence.words, spoken.times, strict=True):
        if start > position:
            words.append("")
            ends.append(start)
        words.append(word)
        ends.append(end)
        position = end
    words.append("")
    ends.append(total)
    return f'{utterance} "{",".join(words)}" "{",".join(f"{end:.4f}" for end in ends)}"'


def flac_bytes(samples: np.ndarray) -> bytes:
    """Encode int16 samples; in memory, since soundfile waits for the disk after every file it writes."""
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, SAMPLING_RATE, format="FLAC", subtype="PCM_16")
    return buffer.getvalue()


def write_chapter(chapter: Chapter, settings: MiniCorpusConfig, root: Path) -> float:
    """Write a chapter's folder, whole or not at all; return its duration in seconds."""
    spoken = speak_chapter(chapter, settings)
    names = [f"{chapter.name}-{index:04d}" for index in range(len(spoken))]
    groups = twin_groups([s.sentence for s in spoken])
    twins = {a: b for group in groups for a, b in zip(group, group[::-1], strict=True) if a != b}
    transcripts, alignments, kinds = [], [], []
    with folder_when_done(chapter.folder(root)) as partial:
        for index, (name, result) in enumerate(zip(names, spoken, strict=True)):
            (partial / f"{name}.flac").write_bytes(flac_bytes(result.samples))
            transcripts.append(f"{name} {' '.join(result.sentence.words)}")
            alignments.append(alignment_line(name, result))
            twin = names[twins[index]] if index in twins else None
            kinds.append(json.dumps(describe(name, result, twin)))
        for suffix, lines in (("trans.txt", transcripts), ("alignment.txt", alignments), ("kinds.jsonl", kinds)):
            (partial / f"{chapter.name}.{suffix}").write_text("".join(f"{line}\n" for line in lines))
    return sum(len(result.samples) for result in spoken) / SAMPLING_RATE


def speakers_table(settings: MiniCorpusConfig, minutes: dict[str, float]) -> str:
    """Return the content of SPEAKERS.TXT, in LibriSpeech's columns."""
    lines = [";ID  |SEX| SUBSET           |MINUTES| NAME"]
    seen: set[str] = set()
    for chapter in plan_chapters(settings):
        speaker = chapter.speaker
        if speaker.id in seen:
            continue
        seen.add(speaker.id)
        columns = (
            f"{speaker.id:<5}",
            f" {voice_gender(speaker.voice)} ",
            f" {part_name(chapter.part):<17}",
            f" {minutes[speaker.id]:<5.2f} ",
            f" espeak-ng {speaker.voice} at {speaker.rate} words per minute, pitch {speaker.pitch}",
        )
        lines.append("|".join(columns))
    return "".join(f"{line}\n" for line in lines)


def chapter_seconds(folder: Path) -> float:
    """Return the total duration of a chapter that is on disk."""
    return sum(soundfile.info(file).duration for file in folder.glob("*.flac"))


def make_mini_corpus(root: Path, settings: MiniCorpusConfig, jobs: int) -> None:
    """Write the corpus under `root`; chapters that are already there stay as they are, and only one call may do it.

    `settings.json` is written first: a folder made with other settings is refused rather than mixed up.
    """
    root.mkdir(parents=True, exist_ok=True)
    record = root / "settings.json"
    if record.exists() and not made_from(record, settings.record()):
        raise UserError(
            f"{root} holds a mini corpus made with other settings (see settings.json there); "
            "delete it or choose another --data-dir"
        )
    write_text(record, json.dumps(settings.record(), indent=2) + "\n")
    chapters = plan_chapters(settings)
    # Also beside chapters that are there: calls that were killed may have spoken the same ones at once.
    for chapter in chapters:
        remove_partial_folder(chapter.folder(root))
    missing = [chapter for chapter in chapters if not chapter.folder(root).exists()]
    run_each(write_chapter, [(chapter, settings, root) for chapter in missing], jobs, "Speaking chapters")
    minutes: dict[str, float] = {}
    for chapter in chapters:
        minutes.setdefault(chapter.speaker.id, 0.0)
        minutes[chapter.speaker.id] += chapter_seconds(chapter.folder(root)) / 60
    write_text(root / "SPEAKERS.TXT", speakers_table(settings, minutes))
