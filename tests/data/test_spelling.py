"""Invariant: words come out as LibriSpeech's transcripts write them, or the sentence is refused."""

import re

import pytest

from transducer_gn.data.spelling import transcript_words

MARKS = re.compile("[.,!-]")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't stop, well-known man!", ["DON'T", "STOP", "WELL", "KNOWN", "MAN"]),
        ("It\u2019s \u2018so\u2019 he says.", ["IT'S", "SO", "HE", "SAYS"]),
        ("'twas the boys' ' home", ["TWAS", "THE", "BOYS", "HOME"]),
        ("stra\u00dfe", ["STRASSE"]),
        ("a caf\u00e9 here", []),
        ("room 7 here", []),
        ("a (b) c", []),
        (" ... ", []),
    ],
)
def test_words_of_a_text(text, words):
    assert transcript_words(text, MARKS) == words
