"""Invariant: tables of one or two systems hold the numbers that were measured, by test set and group."""

import pytest

from transducer_gn.evaluation.bootstrap import Difference, Interval
from transducer_gn.evaluation.latency import UtteranceTimes
from transducer_gn.evaluation.latency_results import Latency, LatencyDifference
from transducer_gn.evaluation.results import Results
from transducer_gn.recognition.error_rates import Recognised
from transducer_gn.reporting.system_tables import (
    comparison_table,
    difference_table,
    latency_table,
    measure_name,
    position_table,
    rates_table,
)

CHANGE = Difference(200.0, 150.0, Interval(-50.0, -60.4, -40.0), 0.0001)


@pytest.mark.parametrize(
    ("name", "shown"), [("all", "all words"), ("noisy", "noisy sentences"), ("noisy words", "noisy words")]
)
def test_names_say_whether_sentences_or_words_are_meant(name, shown):
    assert measure_name(name) == shown


def test_rates_by_group_with_counts_of_errors_for_all_words():
    utterances = [Recognised("a", "A B C D".split(), "A X C D E".split(), "noisy"), Recognised("b", ["A"], ["A"])]
    table = rates_table([Results("test", "epoch-1", {}, utterances)])
    assert table.title.endswith("epoch-1")
    assert [[row[0], row[1], *row[3:]] for row in table.rows] == [
        ["test, all words", "40.00", "1", "0", "1", "5"],
        ["test, ordinary sentences", "0.00", "", "", "", "1"],
        ["test, noisy sentences", "50.00", "", "", "", "4"],
    ]


def test_comparisons_have_both_values_change_interval_and_p():
    (row,) = comparison_table("T", {"test": {"all": CHANGE}}, ("a", "b")).rows
    assert row == ["test, all words", "200.00", "150.00", "-50.00", "-60.40 to -40.00", "-25.0 %", "< 0.001"]


def test_times_of_tokens_and_words():
    times = UtteranceTimes("u", "ordinary", ["x", "y"], [0.1, 0.3], [], [])
    (row,) = latency_table([Latency("test", "s", {}, [times])]).rows
    assert row == ["test", "200", "200 to 200", "2"]
    difference = LatencyDifference({"all": CHANGE, "noisy": CHANGE}, [CHANGE], CHANGE, None)
    rows = difference_table("T", {"test": difference}, ("a", "b")).rows
    assert [row[0] for row in rows] == ["test, all tokens", "test, tokens of noisy sentences", "test, word first shown"]
    assert rows[0][1:] == ["200", "150", "-50.0", "-60.4 to -40.0", "< 0.001"]
    assert position_table("T", difference).rows == [["token 1", "-50.0", "-60.4 to -40.0"]]
