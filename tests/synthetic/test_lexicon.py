"""Invariant: the words of pairs and those that settle them are no other words, so that each tells what it should."""

from transducer_gn.synthetic import lexicon


def test_the_lexicon_has_twenty_pairs_with_settling_words_of_their_own():
    words = [word for pair in lexicon.PAIRS for word in pair.words + pair.settling]
    assert len(lexicon.PAIRS) >= 20
    assert len(set(words)) == len(words)
    others = {word for name, category in lexicon.CATEGORIES.items() if name != "ANY_NOUN" for word in category}
    assert not others & set(words)
    assert len(others) + len(words) > 200
