"""Invariant: figures show the numbers that training wrote, of the time that matters."""

from pathlib import Path

import pytest

from transducer_gn.config import Config, NormalisationConfig
from transducer_gn.evaluation.coverage import Coverage
from transducer_gn.reporting.figures import (
    coverage_figure,
    learning_figure,
    series,
    upper_limit,
    wer_figure,
    with_model_loss,
)
from transducer_gn.reporting.runs import Run


def test_loss_without_regulariser():
    row = {"alpha": 1.0, "numerator": -0.5, "loss": 3.0, "regulariser": 40.0, "regulariser_weight": 0.01}
    assert with_model_loss([row])[0]["model_loss"] == 0.5
    assert with_model_loss([row | {"alpha": 0.5}])[0]["model_loss"] == pytest.approx(2.6)
    assert with_model_loss([{"epoch": 1}]) == []


def test_figures_are_not_flattened_by_the_first_epochs():
    assert upper_limit([100, 90, 5, 5, 4, 4, 4]) == pytest.approx(21)
    assert upper_limit([]) == pytest.approx(1.05)


def test_only_what_was_logged_as_a_number_is_drawn():
    rows = [{"epoch": 1, "wer": 5.0}, {"epoch": 2}, {"epoch": 3, "wer": None}, {"epoch": 4, "wer": 3}]
    assert series(rows, "wer") == ([1, 4], [5.0, 3])


def test_runs_without_validation_are_left_out_and_nothing_left_is_no_figure():
    run = Run("a", Path("a"), valid=[{"epoch": 1, "wer": 7.0}])
    drawn = wer_figure("x", [("one", run), ("none", Run("b", Path("b")))], [run], "")
    assert [(line["label"], line["points"]) for line in drawn.panels()[0]["lines"]] == [("one", [[1, 7.0]])]
    assert wer_figure("x", [("none", Run("b", Path("b")))], [], "") is None


def test_learning_curves_are_of_local_runs_in_training_and_on_the_dev_set():
    row = {"alpha": 1.0, "numerator": -0.5, "loss": 3.0, "regulariser": 40.0, "regulariser_weight": 0.01}
    seen = [row | {"epoch": 1}, row | {"epoch": 2, "numerator": -0.25}]
    valid = [{"epoch": 2, "wer": 7.0, "numerator": -0.75}]
    local, other = (
        Run(name, Path(name), train=seen, valid=valid, config=Config(normalisation=NormalisationConfig(alpha=alpha)))
        for name, alpha in (("local", 1.0), ("global", 0.3))
    )
    upper, lower = learning_figure([local, other]).panels()
    assert [line["points"] for line in upper["lines"]] == [[[1, 0.5], [2, 0.25]], [[2, 0.75]]]
    assert [line["points"] for line in lower["lines"]] == [[[2, 7.0]]]
    assert learning_figure([other]) is None


def test_coverage_is_drawn_as_mean_share_and_distance():
    drawn = coverage_figure([("s", [Coverage(1, [0.0, -100.0], 0.9, 0.25), Coverage(4, [0.0, 0.0], 1.0, 0.0)])])
    shares, distances = (panel["lines"][0]["points"] for panel in drawn.panels())
    assert shares == [[1, pytest.approx(0.5)], [4, pytest.approx(1.0)]]
    assert distances == [[1, 0.25], [4, 0.0]]
