"""Invariant: the command makes a text of books without those that were held out, and names the flag that is wrong."""

import json

import pytest

from transducer_gn.commands.make_text import main
from transducer_gn.common.errors import UserError
from transducer_gn.data.manifest_files import write_json_lines

SENTENCE = "They went to the house of the man with the dog, and he was not in it, so they came home in the end."
READ = "Call me by the name that the others on this ship have for me, and I will come to you in the evening."


@pytest.fixture
def flags(tmp_path):
    """Flags for two books, one of which was read in a test part."""
    (tmp_path / "books" / "sub").mkdir(parents=True)
    (tmp_path / "books" / "kept.txt").write_text(f"{SENTENCE} " * 250)
    (tmp_path / "books" / "sub" / "read.txt").write_text(f"{READ} {SENTENCE} " * 150)
    manifests = tmp_path / "data" / "manifests"
    manifests.mkdir(parents=True)
    (tmp_path / "data" / "parts.json").write_text(json.dumps({"train": ["a"], "test": ["b"]}))
    write_json_lines(manifests / "supervisions_b.jsonl.gz", [{"text": "THE OTHERS ON THIS SHIP HAVE FOR ME"}])
    return {"--books": tmp_path / "books", "--data-dir": tmp_path / "data", "--out": tmp_path / "text.txt"}


def run(flags):
    """Call the command."""
    main([str(word) for flag in flags.items() for word in flag])


def test_a_text_is_made_and_each_book_accounted_for(flags, capsys):
    run(flags)
    assert flags["--out"].read_bytes() == SENTENCE.upper().replace(",", "").replace(".", "").encode() + b"\n"
    assert capsys.readouterr().out.splitlines() == [
        "Held out: 2 runs of 7 words of dev and test parts",
        "kept.txt: 1 sentences, 24 words",
        "sub/read.txt: left out, held out: 150 of its sentences share 7 words in a row with dev or test parts",
        f"{flags['--out']}: 1 sentences, 24 words of 1 books",
    ]


@pytest.mark.parametrize(
    ("flag", "value", "sentence"),
    [
        ("--books", "nowhere", "there is no folder .*nowhere; name a folder of plain-text books with --books"),
        ("--data-dir", "nowhere", "nowhere holds no prepared data"),
        ("--out", "books/all.txt", "--out .*books/all.txt would be read as a book the next time; write it outside"),
        ("--out", "data", "--out .*data is a folder; name a file"),
    ],
)
def test_a_wrong_flag_is_named(flags, tmp_path, flag, value, sentence):
    with pytest.raises(UserError, match=sentence):
        run(flags | {flag: tmp_path / value})
    assert not flags["--out"].exists() and not (tmp_path / "books" / "all.txt").exists()
