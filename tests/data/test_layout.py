"""Invariant: a corpus in LibriSpeech's layout is read as it stands, and what is not in that layout is named."""

import json

import pytest

from transducer_gn.common.errors import UserError
from transducer_gn.data.layout import assign_roles, find_parts, read_part


def test_parts_get_their_roles_by_name_or_as_told():
    parts = ["dev-clean", "test-clean", "test-other", "train-clean-5", "extra"]
    assert assign_roles(parts, {}) == {
        "train": ["train-clean-5"],
        "dev": ["dev-clean"],
        "test": ["test-clean", "test-other"],
    }
    told = assign_roles(parts, {"train": ["extra"], "dev": ["test-other"]})
    assert told == {"train": ["extra"], "dev": ["test-other"], "test": ["test-clean"]}
    with pytest.raises(UserError, match="--dev names the part 'nothing'"):
        assign_roles(parts, {"dev": ["nothing"]})
    with pytest.raises(UserError, match="name the training parts with --train"):
        assign_roles(["one", "dev-two"], {})


def test_a_folder_without_a_corpus_is_named(tmp_path):
    with pytest.raises(UserError, match="holds no corpus in LibriSpeech's layout"):
        find_parts(tmp_path)
    with pytest.raises(UserError, match="there is no folder"):
        find_parts(tmp_path / "nowhere")


def test_text_is_read_with_spaces_put_right_and_alignments_without_silences(small_corpus):
    folder = small_corpus / "train-a" / "1" / "7"
    (folder / "1-7.trans.txt").write_text("1-7-0000   TWO  WORDS \n1-7-0001 ONE\n1-7-0002 ONE\n")
    (folder / "1-7.alignment.txt").write_text('1-7-0000 ",TWO,,WORDS," "0.1,0.3,0.35,0.8,1.0"\n')
    (folder / "1-7.kinds.jsonl").write_text(json.dumps({"id": "1-7-0001", "kind": "control"}) + "\n")
    utterances, problems = read_part(small_corpus, "train-a")
    assert not problems
    assert utterances[0].text == "TWO WORDS"
    assert utterances[0].words == (("TWO", 0.1, 0.2), ("WORDS", 0.35, 0.45))
    assert utterances[1].custom == {"kind": "control"}


@pytest.mark.parametrize(("name", "content"), [("1-7.alignment.txt", "1-7-0000 x\n"), ("1-7.kinds.jsonl", "{}\n")])
def test_broken_side_files_are_named(small_corpus, name, content):
    (small_corpus / "train-a" / "1" / "7" / name).write_text(content)
    with pytest.raises(UserError, match=f"{name}, line 1"):
        read_part(small_corpus, "train-a")


def test_a_transcript_that_is_not_utf8_is_named(small_corpus):
    (small_corpus / "train-a" / "1" / "7" / "1-7.trans.txt").write_bytes(b"1-7-0000 CAF\xc9\n")
    with pytest.raises(UserError, match="1-7.trans.txt is not UTF-8"):
        read_part(small_corpus, "train-a")
