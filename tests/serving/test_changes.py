"""Invariant: a word counts as withdrawn exactly if it was shown and the newer text does not have it there; a word that
only goes on is not.
"""

import pytest

from transducer_gn.recognition.transcript import Word
from transducer_gn.serving.changes import withdrawn_words


def words(text: str) -> list[Word]:
    """Words with times by their place."""
    return [Word(word, place / 10, place / 10 + 0.05) for place, word in enumerate(text.split())]


@pytest.mark.parametrize(
    ("before", "now", "gone"),
    [
        ("", "SOME", []),
        ("SOME FAN", "SOME FAN WENT", []),
        ("SOME FAN WENT OFTEN", "SOME VAN WENT OFTEN DRIVER", [("FAN", 1, "VAN")]),
        ("SOME SEC", "SOME SECRET", []),
        ("SOME SEC", "SOME SUCH", [("SEC", 1, "SUCH")]),
        ("SEC SOME", "SECRET SOME", [("SEC", 0, "SECRET")]),
        ("A FAN ONE", "A", [("FAN", 1, ""), ("ONE", 1, "")]),
        ("A FAN ONE B", "A VAN WON B", [("FAN", 1, "VAN WON"), ("ONE", 1, "")]),
        ("FAN A FAN", "VAN A VAN", [("FAN", 0, "VAN"), ("FAN", 2, "VAN")]),
    ],
)
def test_what_is_withdrawn(before: str, now: str, gone: list[tuple[str, int, str]]) -> None:
    found = withdrawn_words(words(before), words(now))
    assert [(each.word.text, each.place, each.instead) for each in found] == gone
    assert all(each.word in words(before) for each in found)
