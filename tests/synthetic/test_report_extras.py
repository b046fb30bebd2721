"""Invariant: what a report adds for the mini corpus is about its blended words and controls alone, reads results of the
first version as well, and is nothing on another corpus.
"""

import pytest

from transducer_gn.evaluation.bootstrap import Difference, Interval
from transducer_gn.evaluation.latency import UtteranceTimes
from transducer_gn.evaluation.results import read_entry
from transducer_gn.recognition.error_rates import Recognised
from transducer_gn.synthetic.blends import blended_errors, blended_tokens
from transducer_gn.synthetic.report_extras import MiniCorpusExtras, control_note

PAIR = {"pair": ["MAIL", "NAIL"]}
EXTRAS = MiniCorpusExtras()


def utterance(reference, hypothesis, group="ambiguous", name="x", custom=PAIR, unit=""):
    return Recognised(name, reference.split(), hypothesis.split(), group, unit, custom)


def times(tokens, group="ambiguous", custom=PAIR):
    return UtteranceTimes("u", group, tokens, [0.0] * len(tokens), [], [], custom)


@pytest.mark.parametrize(
    ("hypothesis", "errors"),
    [
        ("THE MAIL ORDER", 0),
        ("THE NAIL ORDER", 1),
        ("THE ORDER", 1),
        ("MAIL THE POLISH", 0),
        ("THE MAIL MAIL ORDER", 0),
    ],
)
def test_only_errors_on_the_blended_word_count_as_such(hypothesis, errors):
    found = blended_errors(utterance("THE MAIL ORDER", hypothesis))
    assert (found.total, found.words) == (errors, 1)


def test_blended_words_are_measured_by_kind_and_twins_together():
    found = EXTRAS.measures(
        [
            utterance("A B", "A C", "ordinary", "1", {}),
            utterance("NAIL A", "NAIL A", "control", "4"),
            utterance("MAIL ORDER", "NAIL ORDER", name="2", unit="2"),
            utterance("NAIL POLISH", "NAIL X", name="3", unit="2"),
        ]
    )
    assert list(found) == ["ambiguous words", "control words"]
    assert {name: measure.rate for name, measure in found.items()} == {"ambiguous words": 50, "control words": 0}
    assert found["ambiguous words"].ids == ["2"] and found["ambiguous words"].errors.tolist() == [1]


def test_blended_tokens_are_those_of_whole_words():
    pieces = ["\u2581THE", "\u2581MA", "IL", "\u2581MAILS", "\u2581M", "AIL"]
    assert blended_tokens(times(pieces)) == [False, True, True, False, True, True]
    assert blended_tokens(times(pieces, custom={})) == [False] * 6


def test_tokens_are_chosen_by_kind():
    measured = [
        times(["\u2581A", "\u2581NAIL"], "control"),
        times(["\u2581MAIL"]),
        times(["\u2581MAIL"], "ordinary", {}),
    ]
    assert EXTRAS.token_choices(measured) == {
        "ambiguous words": [[False, False], [True], [False]],
        "control words": [[False, True], [False], [False]],
    }
    assert EXTRAS.key_tokens[0] == "ambiguous words"


def test_files_of_the_first_version_say_the_same():
    old = {
        "id": "b",
        "reference": ["MAIL"],
        "hypothesis": ["NAIL"],
        "kind": "ambiguous",
        "pair": ["MAIL", "NAIL"],
        "twin": "a",
    }
    found = read_entry(Recognised, old)
    assert (found.group, found.unit) == ("ambiguous", "a") and blended_errors(found).total == 1
    alone = read_entry(Recognised, old | {"kind": "ordinary", "pair": [], "twin": ""})
    assert (alone.group, alone.unit) == ("ordinary", "b") and EXTRAS.measures([alone]) == {}
    old = {
        "id": "b",
        "kind": "control",
        "tokens": ["\u2581X"],
        "emitted": [0.1],
        "blended": [True],
        "shown": [],
        "settled": [],
    }
    assert EXTRAS.token_choices([read_entry(UtteranceTimes, old)]) == {"control words": [[True]]}


def test_another_corpus_has_nothing_of_this():
    assert EXTRAS.measures([utterance("A", "B", "noisy", custom={})]) == {}
    assert EXTRAS.token_choices([times(["\u2581A"], custom={})]) == {}
    assert EXTRAS.key_notes({}) == []


def test_controls_are_judged():
    def note(p_value):
        return control_note(Difference(50.0, 49.0, Interval(-1.0, -3.0, 1.0), p_value))

    assert "no gain (-1.00 points, p 0.400)" in note(0.4)
    assert "look into it" in note(0.01)
    assert EXTRAS.key_notes({"control words": Difference(50.0, 49.0, Interval(-1.0, -3.0, 1.0), 0.4)}) == [note(0.4)]
