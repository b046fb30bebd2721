"""Invariant: over seeds, values are means of the seeds' own and the interval is that of averaged errors; the share of
the gap to lookahead is the share of errors.
"""

import math
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from transducer_gn.common.errors import UserError
from transducer_gn.evaluation.bootstrap import ratio_difference
from transducer_gn.evaluation.results import Results
from transducer_gn.recognition.error_rates import Recognised
from transducer_gn.reporting.over_seeds import EMISSION, OverSeeds, compare_over_seeds, seeds_table
from transducer_gn.reporting.runs import Run

WORDS = 4


def run(name: str, errors: list[int], part: str = "test") -> Run:
    """A run that makes so many errors in each utterance of four words."""
    utterances = [
        Recognised(f"u{n}", ["A"] * WORDS, ["A"] * (WORDS - count) + ["B"] * count) for n, count in enumerate(errors)
    ]
    return Run(name, Path(name), results={part: Results(part, "s", {}, utterances)})


FIRST = [run("local", [1, 2, 0, 4]), run("global", [0, 1, 0, 3])]
SECOND = [run("local", [2, 2, 2, 1]), run("global", [2, 0, 2, 1])]


def test_means_over_seeds():
    over = compare_over_seeds([FIRST, SECOND], "local", "global", "test")["all"]
    assert over.first == pytest.approx([100 * 7 / 16, 100 * 7 / 16])
    assert over.second == pytest.approx([100 * 4 / 16, 100 * 5 / 16])
    assert over.changes == pytest.approx([-18.75, -12.5])
    assert over.mean.change.value == pytest.approx(np.mean(over.changes))
    by_hand = ratio_difference(
        np.array([150.0, 200, 100, 250]), np.array([100.0, 50, 100, 200]), np.full(4, WORDS, dtype=np.int64)
    )
    assert over.mean == by_hand
    text = seeds_table({"all": over}, ("local", "global"), "test").text()
    assert "2 seeds on test" in text and "-18.75, -12.50" in text and "-15.62" in text


def test_an_interval_over_seeds_is_students():
    # Of -2, -1 and 0: mean -1, standard deviation 1; the quantile for two degrees of freedom is in any table.
    over = OverSeeds(None, [10.0, 10.0, 10.0], [8.0, 9.0, 10.0])
    reach = 4.302653 / 3**0.5
    assert asdict(over.change) == pytest.approx({"value": -1, "low": -1 - reach, "high": -1 + reach}, rel=1e-6)
    table = seeds_table({EMISSION: over}, ("local", "global"), "test")
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["95 % over seeds"] == "-3.5 to +1.5" and row["95 % interval"] == "–"
    assert over.values()["change_over_seeds"] == asdict(over.change)
    single = OverSeeds(None, [10.0], [8.0])
    assert single.change.value == -2 and math.isnan(single.change.low)
    assert seeds_table({EMISSION: single}, ("local", "global"), "test").rows[0][-2] == "–"


def test_seeds_that_cannot_be_compared():
    with pytest.raises(UserError, match="no run 'global'"):
        compare_over_seeds([FIRST, SECOND[:1]], "local", "global", "test")
    with pytest.raises(UserError, match="has not been decoded on test"):
        compare_over_seeds([FIRST, [SECOND[0], run("global", [1], part="dev")]], "local", "global", "test")
    shorter = [run("local", [1, 2]), run("global", [1, 1])]
    with pytest.raises(UserError, match="same utterances of test"):
        compare_over_seeds([FIRST, shorter], "local", "global", "test")
