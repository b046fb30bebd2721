"""Invariant: measures of a set are ratios and quantiles over its utterances; delays count from the corpus's ends of
words, or else from the first system's alignment; two systems are compared on words that both get right.
"""

import numpy as np
import pytest

from transducer_gn.config import DisplayConfig
from transducer_gn.evaluation.latency import UtteranceTimes
from transducer_gn.evaluation.stability_results import (
    compare_stability,
    expected_ends,
    is_aligned,
    live_texts,
    summarise,
    was_live,
)
from transducer_gn.recognition.display_policy import Shown


def utterance(text: str, shown: list[str], ends: tuple[float, ...] = (), emitted: tuple[float | None, ...] = ()):
    words = text.split()
    tokens = [f"\u2581{word}" for word in words]
    history = [Shown(float(n), each.split(), computed=0.25) for n, each in enumerate(shown, start=1)]
    emitted = list(emitted or [0.0] * len(tokens))
    return UtteranceTimes(text, "", tokens, emitted, [], [], {}, words, list(ends), float(len(shown)), history)


STEADY = utterance("A B", ["", "A", "A B"], (1.5, 2.0))
RESTLESS = utterance("C D", ["X", "C X", "C D"], (0.5, 1.0))


def test_ratios_are_of_sums_and_quantiles_of_all_words() -> None:
    found = summarise([STEADY, RESTLESS], [STEADY, RESTLESS])
    # X moved when C came before it, and was then replaced by D: erased twice, lost once, each time after one second.
    expected = {
        "unstable_partial_word_ratio": 1 / 4,
        "normalised_erasure": 2 / 4,
        "revisions_per_word": 2 / 4,
        "words_back": 1.0,
        "seconds_back": 1.0,
        # Delays of first being shown are 0.5, 1.0, 1.5 and 2.0 seconds.
        "shown_p50_ms": 1000.0,
        "shown_p90_ms": 2000.0,
        "settled_p50_ms": 1000.0,
        "settled_p90_ms": 2000.0,
        "final_p50_ms": 250.0,
        "final_p90_ms": 250.0,
    }
    assert {name: value.value for name, value in found.items()} == pytest.approx(expected)
    assert all(value.low <= value.value <= value.high for value in found.values())


def test_a_word_that_came_back_was_shown_early_and_settled_late() -> None:
    (found,) = live_texts([utterance("A B", ["A", "X", "A B"], (0.5, 2.0))], [STEADY])
    assert found.shown == [500.0, 1000.0] and found.settled == [2500.0, 1000.0]


def test_holding_words_back_makes_them_late_and_the_text_steady() -> None:
    (found,) = live_texts([RESTLESS], [RESTLESS], DisplayConfig(hold_ms=1000))
    assert found.stability.revisions == 0
    assert found.shown == [2500.0, 2000.0]


def test_without_alignments_of_the_corpus_the_first_system_aligns_both() -> None:
    first = [utterance("A B", ["A", "A B"], emitted=(0.5, 1.0))]
    second = [utterance("A B", ["", "A B"], emitted=(9.0, 9.0))]
    assert not is_aligned(first) and is_aligned([STEADY])
    found = compare_stability(first, second)
    # Words end at 0.5 and 1.0 s, where the first system expects them; it shows them after 1 and 2 s.
    assert (found["shown_p50_ms"].first, found["shown_p50_ms"].second) == pytest.approx((500.0, 1000.0))
    assert found["shown_p90_ms"].change.value == pytest.approx(1500.0 - 1000.0)
    assert found["revisions_per_word"].change.value == 0


def test_words_that_one_system_gets_wrong_are_left_out() -> None:
    wrong = utterance("A B", ["A", "A X"], (1.0, 1.0))
    right = utterance("A B", ["", "", "", "A B"], (1.0, 1.0))
    found = compare_stability([wrong], [right])
    assert (found["shown_p90_ms"].first, found["shown_p90_ms"].second) == (0.0, 3000.0)


def test_pieces_of_a_word_end_with_its_last() -> None:
    pieces = UtteranceTimes("u", "", ["\u2581A", "B", "\u2581C"], [0.1, 0.36, None], [], [], text=["AB", "C"])
    assert expected_ends(pieces, 2) == [0.36, None]
    assert expected_ends(pieces, 3) == [None, None, None]


def test_without_a_history_nothing_is_compared() -> None:
    silent = UtteranceTimes("u", "", [], [], [], [])
    assert not was_live([silent]) and not was_live([]) and compare_stability([silent], [silent]) == {}


def test_nothing_said_is_no_number() -> None:
    found = summarise([utterance("A", [""], (1.0,))], [STEADY])
    assert np.isnan(found["normalised_erasure"].value) and np.isnan(found["shown_p50_ms"].value)
