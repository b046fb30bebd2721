"""Invariant: measures of steadiness and delay are what their definitions give when counted by hand."""

import pytest

from transducer_gn.recognition.display_policy import Shown
from transducer_gn.recognition.stability import (
    Stability,
    delays,
    display_times,
    final_delay,
    lost_words,
    only_grows,
    stability,
)


def history(*texts: str) -> list[Shown]:
    """Texts shown after 1, 2, ... seconds."""
    return [Shown(float(number), text.split()) for number, text in enumerate(texts, start=1)]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["A"], Stability(1)),
        ([""], Stability(0)),
        (["", "A", "A B", "A B C"], Stability(3)),
        (["A B", "A B", "A B"], Stability(2)),
        # One word is replaced; that B stands behind it again saves it from UPWR, not from erasure.
        (["N B", "M B"], Stability(2, unstable=1, erased=2, words_back=[2], seconds_back=[1.0])),
        # There and back: each way counts. N was shown for two seconds, M for one.
        (["N", "N", "M", "N B"], Stability(2, unstable=2, erased=2, words_back=[1, 1], seconds_back=[2.0, 1.0])),
        # What disappears without a successor.
        (["A B C", "A"], Stability(1, unstable=2, erased=2, words_back=[2], seconds_back=[1.0])),
        # A word in front moves the others, which stay what they are.
        (["B C", "A B C"], Stability(3, unstable=0, erased=2, words_back=[2], seconds_back=[1.0])),
        # A last word that grows is unstable as published, but no revision; one that shrinks or is not the last is.
        (["A OR", "A ORDER"], Stability(2, unstable=1, erased=1)),
        (["A ORDER", "A OR"], Stability(2, unstable=1, erased=1, words_back=[1], seconds_back=[1.0])),
        (["OR A", "ORDER A"], Stability(2, unstable=1, erased=2, words_back=[2], seconds_back=[1.0])),
        # How long the first changed word stood, not the last step.
        (["A", "A B", "A B C", "X B C"], Stability(3, unstable=1, erased=3, words_back=[3], seconds_back=[3.0])),
    ],
)
def test_counts_by_hand(texts: list[str], expected: Stability) -> None:
    found = stability(history(*texts))
    assert found == expected
    assert found.revisions == len(expected.words_back)


def test_lost_words_follow_the_alignment() -> None:
    assert lost_words("A B C".split(), "X A C".split()) == 1
    assert lost_words([], ["A"]) == 0
    assert lost_words(["A", "B"], []) == 2


def test_only_the_last_word_may_grow() -> None:
    assert only_grows(["OR"], ["ORDER", "TEA"])
    assert not only_grows(["OR"], []) and not only_grows(["OR", "A"], ["ORDER", "A"]) and not only_grows(["OR"], ["O"])


def test_display_times_are_read_off_what_was_shown() -> None:
    shown = history("NAIL", "MAIL ORDER", "NAIL ORDER FOR", "MAIL ORDER TEA", "THE MAIL ORDER TEA")
    first, last = display_times("MAIL ORDER FOR TEA".split(), shown)
    # FOR is wrong in the end; THE before it does not change MAIL.
    assert first == [2, 2, None, 4]
    assert last == [4, 2, None, 4]


def test_delays_count_from_the_true_ends_of_words() -> None:
    assert delays([2.0, None, 3.0, 1.0], [1.5, 1.0, None, 1.25]) == [0.5, None, None, -0.25]


def test_the_final_text_is_late_by_what_its_step_took() -> None:
    shown = [Shown(1.0, ["A"], computed=9.0), Shown(1.5, ["A", "B"], computed=0.25)]
    assert final_delay(shown, 1.5) == 0.25
