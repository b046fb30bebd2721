"""Invariant: labels are drawn evenly, and nothing but the settling word tells an ambiguous word's label."""

import hashlib
import random
from collections import Counter

import pytest

from transducer_gn.synthetic import lexicon
from transducer_gn.synthetic.sentences import AMBIGUOUS, CONTROL, ORDINARY, draw_sentences


def test_shares_gaps_and_labels_of_drawn_sentences():
    sentences = draw_sentences(2000, ambiguous=0.5, control=0.1, draw=random.Random(0))
    assert Counter(s.kind for s in sentences) == {AMBIGUOUS: 1000, CONTROL: 200, ORDINARY: 800}
    ambiguous = [s for s in sentences if s.kind == AMBIGUOUS]
    assert {s.settling - s.blended - 1 for s in ambiguous} == set(range(7))
    assert max(s.blended for s in ambiguous) <= 2
    sides = Counter(s.pair.words.index(s.words[s.blended]) for s in ambiguous)
    assert sides[0] == sides[1]
    for sentence in ambiguous:
        side = sentence.pair.words.index(sentence.words[sentence.blended])
        assert sentence.words[sentence.settling] == sentence.pair.settling[side]


def test_the_sentences_of_a_seed_stay_the_same():
    """The sum was taken before distances could be chosen: the default corpus is the same byte for byte."""
    lines = [" ".join(s.words) + s.kind for s in draw_sentences(500, 0.5, 0.1, random.Random(7))]
    found = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    assert found == "97c97d036695adf2e27bdafc35bfcb189a5bec4ddee9129282df6f44fd71e3a7"


@pytest.mark.parametrize("distances", [(0, 1), (3,)])
def test_distances_can_be_chosen(distances):
    sentences = draw_sentences(300, ambiguous=0.5, control=0.1, draw=random.Random(0), distances=distances)
    assert {s.settling - s.blended - 1 for s in sentences if s.kind == AMBIGUOUS} == set(distances)


def test_what_surrounds_an_ambiguous_word_never_settles_it():
    sentences = draw_sentences(3000, ambiguous=0.5, control=0.3, draw=random.Random(1))
    telling = {word for pair in lexicon.PAIRS for word in pair.words + pair.settling}
    for sentence in sentences:
        if sentence.kind != ORDINARY:
            allowed = {sentence.blended, sentence.settling}
            assert not telling & {word for index, word in enumerate(sentence.words) if index not in allowed}
