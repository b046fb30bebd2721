"""Invariant: text is drawn sentence by sentence, by the seed alone; what does not look like transcripts is refused."""

from collections import Counter

import pytest

from transducer_gn.common.errors import UserError
from transducer_gn.data.text import Text
from transducer_gn.data.tokenizer import train_tokenizer

SENTENCES = [
    f"{a} {b} {c}" for a in ("THE", "A") for b in ("RED", "BLUE", "OLD") for c in ("HOUSE", "TREE", "HORSE AND CART")
]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(SENTENCES, 26)


@pytest.fixture
def text(tokenizer, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join([*SENTENCES, ""]))
    return Text(path, tokenizer, longest=100)


def texts(drawn, tokenizer):
    return [tokenizer.decode(row) for row in drawn.tolist()]


def test_every_line_is_a_sentence(text, tokenizer):
    assert [tokenizer.decode(text.sentence(number)) for number in range(len(text))] == SENTENCES


def test_the_last_line_needs_no_end(tokenizer, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("THE OLD HOUSE\nA TREE")
    assert [tokenizer.decode(Text(path, tokenizer, 100).sentence(number)) for number in (0, 1)] == [
        "THE OLD HOUSE",
        "A TREE",
    ]


def test_a_draw_is_of_whole_sentences_and_depends_on_the_seed_alone(text, tokenizer):
    first = text.draw(60, seed=3)
    text.draw(60, seed=4)
    assert texts(text.draw(60, seed=3), tokenizer) == texts(first, tokenizer)
    assert set(texts(first, tokenizer)) <= set(SENTENCES)
    assert 60 - 20 < int((first > 0).sum()) <= 60 + 20
    rows = [[token for token in row if token] for row in first.tolist()]
    assert rows == [tokenizer.encode(sentence) for sentence in texts(first, tokenizer)], "padding comes last"
    assert all(row[: len(own)] == own for row, own in zip(first.tolist(), rows, strict=True))


def test_all_sentences_are_drawn_equally_often(text, tokenizer):
    counts = Counter(each for seed in range(2000) for each in texts(text.draw(30, seed), tokenizer))
    mean = sum(counts.values()) / len(SENTENCES)
    assert all(0.7 * mean < counts[each] < 1.3 * mean for each in SENTENCES), counts


def test_long_sentences_are_cut(tokenizer, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(" ".join(SENTENCES) + "\n")
    assert len(Text(path, tokenizer, longest=7).sentence(0)) == 7


def test_blank_lines_are_left_out(tokenizer, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n\nTHE OLD HOUSE\n\n")
    drawn = Text(path, tokenizer, 100).draw(30, seed=0)
    assert set(texts(drawn, tokenizer)) == {"THE OLD HOUSE"}


def test_blank_lines_change_nothing_of_the_sentences_drawn(tokenizer, tmp_path):
    """As many as sentences are no reason to refuse a text; nor do they count as any."""
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{sentence}\n\n" for sentence in SENTENCES))
    drawn = Text(path, tokenizer, 100).draw(60, seed=3)
    assert 60 - 20 < int((drawn > 0).sum()) <= 60 + 20 and set(texts(drawn, tokenizer)) <= set(SENTENCES)


def test_a_text_of_almost_nothing_but_blank_lines_is_refused(tokenizer, tmp_path):
    """Drawn for as long as it takes, ten thousand tokens of it would be looked for among a billion lines."""
    path = tmp_path / "text.txt"
    path.write_text("THE OLD HOUSE\n" + " \n" * 100_000)
    text = Text(path, tokenizer, 100)
    looked = []
    sentence = text.sentence
    text.sentence = lambda number: looked.append(number) or (sentence(number) if len(looked) < 5000 else [1] * 10**6)
    with pytest.raises(UserError, match="almost all lines of .*text.txt are blank, 1001 of 1001 .*; remove them"):
        text.draw(10_000, seed=0)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "there is no file"),
        ("", "is empty"),
        ("\n\n \n", "holds no text"),
        ("the old house, 12 trees\n", "% of the tokens of .* are unknown"),
        (b"THE OLD HOUSE\n\xff\xfe\n", "line 2 of .* is not UTF-8"),
    ],
)
def test_other_files_are_refused(content, sentence, tokenizer, tmp_path):
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=sentence):
        Text(path, tokenizer, 100)
