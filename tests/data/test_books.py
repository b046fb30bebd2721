"""Invariant: sentences of books come out as transcripts are written and each once; nothing that dev and test parts
were read from comes out at all.
"""

import json
import os

import pytest

from transducer_gn.common.errors import UserError
from transducer_gn.data import books
from transducer_gn.data.books import HeldOut, Taken, body, book_fault, find_books, held_out, joined, sentences
from transducer_gn.data.manifest_files import write_json_lines

HELD = "ONE TWO THREE FOUR FIVE SIX SEVEN EIGHT".split()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I saw Mr. Fox; he\r\nran. \u201cStop!\u201d said she.", ["I SAW MISTER FOX", "HE RAN", "SAID SHE"]),
        ("Mrs. A, Dr. B, St. C", ["MISSUS A DOCTOR B SAINT C"]),
        ("It\u2019s _very_ well\u2014or so [1] it seems.", ["IT'S VERY WELL OR SO IT SEEMS"]),
        ("He said 'No more.' They went.", ["HE SAID NO MORE", "THEY WENT"]),
        ("It was 1812. They went home.", ["THEY WENT HOME"]),
        ("The caf\u00c9 was shut. They went home.", ["THEY WENT HOME"]),
        ("CHAPTER I\n \nIt was night", ["CHAPTER I", "IT WAS NIGHT"]),
        ("One line\nand another", ["ONE LINE AND ANOTHER"]),
        ("Well. Yes? No!", []),
    ],
)
def test_sentences_are_written_as_transcripts(text, expected):
    assert list(map(" ".join, sentences(text))) == expected


def test_notes_that_begin_and_never_end_stay_and_cost_nothing():
    """Looking for the end of each, as it did, took minutes for these."""
    (words,) = sentences("A dog [a note] ran " + "[x " * 300_000)
    assert words == ["A", "DOG", "RAN", *["X"] * 300_000]


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([10, 14], [24]),
        ([10, 15], [10, 15]),
        ([5, 5, 5, 5, 5, 5], [20, 10]),
        ([40], [40]),
        ([41], [30, 11]),
        ([5, 75, 9], [5, 30, 30, 24]),
        ([], []),
    ],
)
def test_utterances_are_as_long_as_read_speech(lengths, expected):
    words = [f"W{number}" for number in range(sum(lengths))]
    starts = [sum(lengths[:index]) for index in range(len(lengths))]
    found = list(joined(words[start : start + length] for start, length in zip(starts, lengths, strict=True)))
    assert list(map(len, found)) == expected
    assert [word for utterance in found for word in utterance] == words


def test_a_book_is_what_stands_between_its_marks():
    text = "licence *** START OF THIS BOOK,\nCALLED SO ***the book*** END OF THIS BOOK ***\nlicence"
    assert body(text) == "the book"
    assert body("***START OF IT***the book") == "the book"
    assert body("no marks") == "no marks"


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["the"] * 1000 + ["x"] * 3999, "4999 words, fewer than 5000"),
        (["The"] * 1000 + ["x"] * 4000, None),
        (["the"] * 990 + ["x"] * 4010, "hardly English: 19.8% of its words are of the most common ones, less than 20%"),
        (["x"] * 5000, "hardly English: 0.0% of its words are of the most common ones, less than 20%"),
        ([], "0 words, fewer than 5000"),
    ],
)
def test_what_is_no_english_book(words, fault):
    assert book_fault(" ".join(words)) == fault


def test_books_come_in_the_order_of_bytes(tmp_path):
    names = ["B.txt", "a-b/c.txt", "a/d/e.txt", "a/z.txt", "b.txt", "\u00e9.txt"]
    for name in [*reversed(names), "a/notes.md"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "folder.txt").mkdir()
    assert [str(path.relative_to(tmp_path)) for path in find_books(tmp_path)] == names


def test_a_folder_without_books_is_named(tmp_path):
    with pytest.raises(UserError, match=f"there is no .*txt below {tmp_path}; .*--books"):
        find_books(tmp_path)


def test_seven_words_in_a_row_are_too_many():
    held = HeldOut([HELD, ["TOO", "SHORT"]])
    assert len(held) == 2
    assert held.shares(["SAY", *HELD[1:8], "SO"]) and held.shares(HELD[:7])
    assert not held.shares(HELD[:6]) and not held.shares([*HELD[:6], "SO", *HELD[6:]])


def write_data(folder, texts):
    """Make what is needed of a prepared folder with a transcript in each of some parts."""
    (folder / "manifests").mkdir(parents=True)
    roles = {"train": ["train-a"], "dev": ["dev-a"], "test": ["test-a", "test-b"]}
    (folder / "parts.json").write_text(json.dumps(roles))
    for part, text in texts.items():
        write_json_lines(folder / "manifests" / f"supervisions_{part}.jsonl.gz", [{"id": part, "text": text}])
    return folder


def test_dev_and_test_parts_are_held_out_and_training_is_not(tmp_path):
    texts = {part: " ".join([part[0].upper()] * 5 + [part[-1].upper()] * 2) for part in ("train-a", "dev-a", "test-a")}
    held = held_out(write_data(tmp_path, texts | {"test-b": "t t t t t b b"}))
    assert held.shares("D D D D D A A".split()) and held.shares("T T T T T B B".split()) and len(held) == 3
    write_json_lines(tmp_path / "manifests" / "supervisions_train-a.jsonl.gz", [{"text": "R " * 7}])
    assert not held_out(tmp_path).shares(["R"] * 7)


def test_a_prepared_folder_that_is_not_whole_is_named(tmp_path):
    with pytest.raises(UserError, match="holds no prepared data"):
        held_out(tmp_path)
    write_data(tmp_path, {"dev-a": "WELL", "test-a": "WELL"})
    with pytest.raises(UserError, match=r"there is no .*supervisions_test-b.jsonl.gz; run ./prepare.sh"):
        held_out(tmp_path)
    write_json_lines(tmp_path / "manifests" / "supervisions_test-b.jsonl.gz", [{"text": "WELL"}, {"text": None}])
    with pytest.raises(UserError, match=r"supervisions_test-b.jsonl.gz, line 2 has no text"):
        held_out(tmp_path)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder for books of a few words."""
    monkeypatch.setattr(books, "FEWEST_WORDS", 10)
    (tmp_path / "books").mkdir()
    return tmp_path / "books"


def line(tail):
    """A sentence of 24 words, which stands by itself."""
    return f"It was the man with the dog and {'he went to the ' * 3}{tail} of it all."


def quote(tail):
    """The same length, with what is held out."""
    return f"It was said that {' '.join(HELD).lower()} {'the ' * 8}{tail} of it all."


def text_of(folder, out, held=HELD):
    """The lines that are made of a folder."""
    total = books.write_books(folder, HeldOut([held]), out)
    lines = out.read_text().splitlines()
    assert (total.sentences, total.words) == (len(lines), sum(len(each.split()) for each in lines))
    return lines, total


def written(sentence):
    """A sentence as the text has it."""
    return sentence.upper().rstrip(".")


def test_sentences_stand_in_order_and_each_once(folder, tmp_path, capsys):
    (folder / "b.txt").write_text(f"{line('end')} {line('start')} {line('end')}")
    (folder / "a.txt").write_text(f"{line('house')} {line('end')}")
    lines, total = text_of(folder, tmp_path / "new" / "text.txt")
    assert lines == [written(line(tail)) for tail in ("house", "end", "start")]
    assert total == Taken(books=2, sentences=3, words=72)
    assert capsys.readouterr().out == "a.txt: 2 sentences, 48 words\nb.txt: 1 sentences, 24 words\n"
    assert os.listdir(tmp_path / "new") == ["text.txt"]


def test_a_book_that_a_part_was_read_from_is_left_out_whole_and_a_quotation_alone(folder, tmp_path, capsys):
    (folder / "quotes.txt").write_text(f"{quote('house')} {line('end')} {quote('dog')}")
    (folder / "read.txt").write_text(f"{quote('house')} {line('start')} {quote('dog')} {quote('man')}")
    lines, _ = text_of(folder, tmp_path / "text.txt")
    assert lines == [written(line("end"))]
    assert capsys.readouterr().out.splitlines() == [
        "quotes.txt: 1 sentences, 24 words",
        "read.txt: left out, held out: 3 of its sentences share 7 words in a row with dev or test parts",
    ]


def test_why_a_book_is_left_out_is_said(folder, tmp_path, capsys):
    (folder / "fine.txt").write_text(line("end"))
    (folder / "latin.txt").write_bytes(line("caf\u00e9").encode("latin-1"))
    (folder / "short.txt").write_text("The end of it.")
    lines, total = text_of(folder, tmp_path / "text.txt")
    assert lines == [written(line("end"))] and total.books == 1
    assert capsys.readouterr().out.splitlines()[1:] == [
        "latin.txt: left out, not UTF-8 (invalid continuation byte at byte 80); convert it",
        "short.txt: left out, 4 words, fewer than 10",
    ]


def test_a_text_of_nothing_is_not_written(folder, tmp_path):
    (folder / "short.txt").write_text("The end of it.")
    (tmp_path / "text.txt").write_text("of an earlier call")
    with pytest.raises(UserError, match=f"no book below {folder} can be used"):
        text_of(folder, tmp_path / "text.txt")
    assert (tmp_path / "text.txt").read_text() == "of an earlier call"
