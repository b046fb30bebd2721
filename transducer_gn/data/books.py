"""Sentences of plain-text books, such as Project Gutenberg's, written as LibriSpeech's transcripts are.

LibriSpeech was read from such books. Those that dev and test parts were read from are held out.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from transducer_gn.common.errors import UserError
from transducer_gn.common.files import replace_when_done
from transducer_gn.data.layout import read_roles
from transducer_gn.data.manifest_files import read_json_lines
from transducer_gn.data.spelling import APOSTROPHES, transcript_words

# What Project Gutenberg puts before and after a book.
START = re.compile(r"\*\*\* ?START OF.*?\*\*\*", re.DOTALL)
END = re.compile(r"\*\*\* ?END OF")
FEWEST_WORDS = 5000
# A share of them among all words shows that a book is English.
COMMON = frozenset("the of and to a in that it was he his i with as her".split())
SMALLEST_SHARE = 0.2

PARAGRAPH_END = re.compile(r"\n\s*\n")
NOTE = re.compile(r"\[.*?\]")
TITLE = re.compile(r"\b(Mr|Mrs|Dr|St)\.")
TITLES = {"Mr": "mister", "Mrs": "missus", "Dr": "doctor", "St": "saint"}
SENTENCE_END = re.compile("(?<=[.!?;:])[\"\u201d']?\\s+")
# Digits and some letters with accents stay, so that a sentence that has them is seen not to be in English words alone.
UNSPOKEN = re.compile("[^A-Z' 0-9ÀÉÈÊÆŒÇÔÎÏÜÖÄ]")
# Sentences are joined up to the first number of words; what is longer than the second is cut after the third.
JOINED, LONGEST, CUT = 24, 40, 30

# Nobody but who quotes has so many words in a row in common with a held-out part.
RUN = 7
# A book with so many utterances that have such a run is one that the part was read from.
MOST_SHARED = 3


class HeldOut:
    """Texts that must not be read.

    Args:
        texts: each is a sequence of words
    """

    def __init__(self, texts: Iterable[Sequence[str]]) -> None:
        self._runs = {run for text in texts for run in runs_of(text)}

    def __len__(self) -> int:
        return len(self._runs)

    def shares(self, words: Sequence[str]) -> bool:
        """Whether some words in a row are also in the texts."""
        return any(run in self._runs for run in runs_of(words))


@dataclass(frozen=True)
class Taken:
    """How much was taken, of one book or of all."""

    books: int = 0
    sentences: int = 0
    words: int = 0

    def __add__(self, other: "Taken") -> "Taken":
        return Taken(self.books + other.books, self.sentences + other.sentences, self.words + other.words)


def runs_of(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """All words in a row of the number that counts."""
    return (tuple(words[start : start + RUN]) for start in range(len(words) - RUN + 1))


def held_out(data_dir: Path) -> HeldOut:
    """The transcripts of the dev and test parts of a prepared folder."""
    roles = read_roles(data_dir)
    return HeldOut(text.upper().split() for part in roles["dev"] + roles["test"] for text in part_texts(data_dir, part))


def part_texts(data_dir: Path, part: str) -> Iterator[str]:
    """The transcripts of a part of a prepared folder."""
    path = data_dir / "manifests" / f"supervisions_{part}.jsonl.gz"
    if not path.is_file():
        raise UserError(f"there is no {path}; run ./prepare.sh for this corpus from stage 1")
    for number, supervision in enumerate(read_json_lines(path), start=1):
        if not isinstance(text := supervision.get("text"), str):
            raise UserError(f"{path}, line {number} has no text; delete it and run prepare.sh again")
        yield text


def find_books(folder: Path) -> list[Path]:
    """All text files below a folder, in the order of the bytes of their paths, which is the same everywhere."""
    books = [path for path in folder.rglob("*.txt") if path.is_file()]
    if not books:
        raise UserError(f"there is no *.txt below {folder}; name a folder of plain-text books with --books")
    return sorted(books, key=lambda path: os.fsencode(path.relative_to(folder)))


def write_books(folder: Path, kept_out: HeldOut, out: Path) -> Taken:
    """Write the sentences of all books of a folder, each once, a line each; say of each book what became of it."""
    total, seen = Taken(), set[str]()
    out.parent.mkdir(parents=True, exist_ok=True)
    with replace_when_done(out) as sibling, sibling.open("w", encoding="utf-8", newline="\n") as file:
        for path in find_books(folder):
            utterances, problem = read_book(path, kept_out)
            # In the order of the book, which a set has not.
            new = [line for line in dict.fromkeys(map(" ".join, utterances)) if line not in seen]
            seen.update(new)
            file.writelines(f"{line}\n" for line in new)
            taken = Taken(bool(new), len(new), sum(line.count(" ") + 1 for line in new))
            total += taken
            became = f"left out, {problem}" if problem else f"{taken.sentences} sentences, {taken.words} words"
            print(f"{path.relative_to(folder)}: {became}", flush=True)
        if not total.sentences:
            raise UserError(f"no book below {folder} can be used, for the reasons above; put others there")
    return total


def read_book(path: Path, kept_out: HeldOut) -> tuple[list[list[str]], str | None]:
    """The utterances of a book that may be read; none, and the reason, if the whole book may not."""
    try:
        # As bytes: nobody changes the ends of lines.
        text = body(path.read_bytes().decode())
    except UnicodeDecodeError as error:
        return [], f"not UTF-8 ({error.reason} at byte {error.start}); convert it"
    if problem := book_fault(text):
        return [], problem
    utterances = list(joined(sentences(text)))
    allowed = [words for words in utterances if not kept_out.shares(words)]
    if (shared := len(utterances) - len(allowed)) >= MOST_SHARED:
        return [], f"held out: {shared} of its sentences share {RUN} words in a row with dev or test parts"
    return allowed, None


def body(text: str) -> str:
    """A book without what Project Gutenberg says about it."""
    if start := START.search(text):
        text = text[start.end() :]
    end = END.search(text)
    return text[: end.start()] if end else text


def book_fault(text: str) -> str | None:
    """Why a text is no English book, or None."""
    words = text.lower().split()
    share = sum(word in COMMON for word in words) / max(1, len(words))
    if len(words) < FEWEST_WORDS:
        return f"{len(words)} words, fewer than {FEWEST_WORDS}"
    if share < SMALLEST_SHARE:
        return f"hardly English: {share:.1%} of its words are of the most common ones, less than {SMALLEST_SHARE:.0%}"
    return None


def sentences(text: str) -> Iterator[list[str]]:
    """The sentences of a book, and parts of them that stand by themselves; those of one word are left out.

    So are those with words that transcripts spell otherwise, such as numbers.
    """
    for paragraph in PARAGRAPH_END.split(text):
        line = " ".join(paragraph.split()).replace("_", "").translate(APOSTROPHES)
        # Behind the last end of a note there is none; for every beginning, one would be looked for to the end.
        end = line.rfind("]") + 1
        line = TITLE.sub(lambda found: TITLES[found[1]], NOTE.sub("", line[:end]) + line[end:])
        for sentence in SENTENCE_END.split(line):
            words = transcript_words(sentence, UNSPOKEN)
            if len(words) > 1:
                yield words


def joined(parts: Iterable[list[str]]) -> Iterator[list[str]]:
    """Utterances of some 20 words, as read speech is cut: short sentences together, long ones in pieces."""
    words: list[str] = []
    for part in parts:
        if words and len(words) + len(part) > JOINED:
            yield words
            words = []
        words = words + part
        while len(words) > LONGEST:
            yield words[:CUT]
            words = words[CUT:]
    if words:
        yield words
