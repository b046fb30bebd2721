"""Invariant: columns line up, words on the left and numbers on the right; a number that is none is a dash."""

import math

from transducer_gn.reporting.table import Table, p_text, percent, signed


def test_tables_line_up_words_left_and_numbers_right():
    table = Table("T", ["run", "how", "x"], [["a", "local", "1.5"], [], ["longer", "g", "–"]], ["N."])
    assert table.text().splitlines() == [
        "T",
        "",
        "run     how      x",
        "------  -----  ---",
        "a       local  1.5",
        "------  -----  ---",
        "longer  g        –",
        "  N.",
    ]


def test_a_column_with_a_word_in_it_stands_on_the_left():
    lines = Table("T", ["", "x"], [["a", "10"], ["b", "none"]]).text().splitlines()
    assert lines[4:] == ["a  10", "b  none"]


def test_numbers_as_readers_expect_them():
    assert [percent(value) for value in (1 / 3, math.nan)] == ["0.33", "–"]
    assert [signed(value, 1) for value in (0.04, -2.5, math.nan)] == ["+0.0", "-2.5", "–"]
    assert [p_text(value) for value in (0.0009, 0.001, 0.0355, math.nan)] == ["< 0.001", "0.001", "0.035", "–"]
