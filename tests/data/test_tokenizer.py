"""Invariant: ids are sentencepiece's own with blank at 0; text comes back from its ids; training is repeatable."""

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transducer_gn.common.errors import UserError
from transducer_gn.data.tokenizer import BLANK, UNKNOWN, Tokenizer, save_tokenizer, train_tokenizer
from transducer_gn.synthetic.lexicon import CATEGORIES

WORDS = [word for category in CATEGORIES.values() for word in category]
LINES = [" ".join(WORDS[index : index + 6]) for index in range(0, len(WORDS), 2)]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(LINES, 80)


def test_special_ids_and_size(tokenizer):
    assert tokenizer.vocab_size == len(tokenizer.pieces) == 80
    assert tokenizer.pieces[:3] == ["<blk>", "<sos/eos>", "<unk>"]
    assert BLANK == 0 and UNKNOWN == 2


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=8))
def test_text_comes_back(tokenizer, words):
    text = " ".join(words)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert all(2 < index < 80 for index in ids)


def test_blanks_and_the_start_symbol_are_no_text(tokenizer):
    ids = tokenizer.encode("THE TABLE")
    assert tokenizer.decode([0, 1, *ids, 0]) == "THE TABLE"


def test_unknown_characters_become_unk(tokenizer):
    assert UNKNOWN in tokenizer.encode("THE 7")


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_training_is_repeatable(model_type):
    assert train_tokenizer(LINES, 60, model_type).model == train_tokenizer(LINES, 60, model_type).model


def test_thirty_two_pieces_hold_the_alphabet():
    tokenizer = train_tokenizer([*LINES, "QUIZ JINX"], 32)
    assert tokenizer.vocab_size == 32
    assert tokenizer.decode(tokenizer.encode("JUMPED")) == "JUMPED"


def test_a_vocabulary_larger_than_the_text_supports_says_how_large_it_may_be():
    with pytest.raises(UserError, match=r"at most \d+ pieces, not 5000; choose \d+ or fewer") as caught:
        train_tokenizer(LINES, 5000)
    most = int(str(caught.value).split("at most ")[1].split()[0])
    assert train_tokenizer(LINES, most).vocab_size == most


def test_a_vocabulary_too_small_for_the_alphabet_says_how_small_it_may_be():
    with pytest.raises(UserError, match=r"cannot hold all characters of the text; choose \d+ or more"):
        train_tokenizer(LINES, 20)


def test_another_type_is_refused():
    with pytest.raises(UserError, match="--token-model must be unigram or bpe, not 'word'"):
        train_tokenizer(LINES, 60, "word")


def test_saved_loaded_and_pickled_models_are_the_same(tokenizer, tmp_path):
    save_tokenizer(tokenizer, tmp_path)
    loaded = [Tokenizer.load(tmp_path), Tokenizer.load(tmp_path / "tokenizer.model")]
    for copy in (*loaded, pickle.loads(pickle.dumps(tokenizer))):
        assert copy.model == tokenizer.model and copy.encode("THE TABLE") == tokenizer.encode("THE TABLE")
    assert (tmp_path / "tokens.txt").read_text().splitlines()[0] == "<blk> 0"


def test_a_missing_or_broken_model_is_named(tmp_path):
    with pytest.raises(UserError, match="there is no token model"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"nonsense")
    with pytest.raises(UserError, match="is not a sentencepiece model"):
        Tokenizer.load(tmp_path)
