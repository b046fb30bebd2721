"""Invariant: the figure of the two readings shows the chosen utterance under both systems, or is not there."""

import math
from dataclasses import replace

import pytest

from transducer_gn.data.prepared import PreparedData
from transducer_gn.reporting.extras import Comparison
from transducer_gn.synthetic import readings_figure as module
from transducer_gn.synthetic.readings import Readings
from transducer_gn.synthetic.readings_figure import compare_readings, readings_figure


def readings(name, right, settling=(0.2, 0.3)):
    seconds = [0.1 * (n + 1) for n in range(len(right))]
    wrong = [1 - share for share in right]
    return Readings(name, f"text of {name}", ("MAIL", "NAIL"), seconds, right, wrong, (0.0, 0.1), settling)


def test_both_systems_and_the_average_are_drawn():
    local, other = (
        [readings("u", [0.5, 0.2]), readings("v", [0.9, 0.9])],
        [readings("u", [0.5, 0.8]), readings("v", [1.0, 1.0])],
    )
    drawn = readings_figure(local, other, ("one", "other"), "u")
    left, right, below = drawn.panels()
    assert [line["label"] for line in left["lines"]] == ["MAIL (said)", "NAIL"]
    assert left["lines"][0]["points"] == [[0.1, 0.5], [0.2, 0.2]]
    assert [y for _, y in right["lines"][1]["points"]] == pytest.approx([0.5, 0.2])
    means = {line["label"]: [y for _, y in line["points"] if not math.isnan(y)] for line in below["lines"]}
    assert means["one"][-1] == pytest.approx((0.2 + 0.9) / 2) and means["other"][-1] == pytest.approx((0.8 + 1.0) / 2)
    assert drawn.explains_key and "(u)" in drawn.caption and "over 2 ambiguous utterances" in drawn.caption


def test_without_times_there_is_no_average():
    one = [readings("u", [0.5, 0.2], settling=None)]
    drawn = readings_figure(one, one, ("one", "other"), "u")
    assert len(drawn.panels()) == 2 and "on average" not in drawn.caption


@pytest.fixture
def comparison(runs, toy):
    return Comparison(runs / "local", runs / "global", PreparedData(toy.folder), "test")


def test_real_runs_are_followed_and_compared(comparison, monkeypatch):
    monkeypatch.setattr(module, "telling_utterance", lambda local, other: local[0].id)
    drawn = compare_readings(comparison)
    assert [axis.get_title() for axis in drawn.figure.axes] == ["local", "global"]


def test_no_telling_utterance_and_no_system_are_no_figure(comparison, monkeypatch, tmp_path, caplog):
    monkeypatch.setattr(module, "telling_utterance", lambda local, other: None)
    assert compare_readings(comparison) is None
    assert compare_readings(replace(comparison, challenger=tmp_path / "nowhere")) is None
    assert "no figure of the two readings: there is no experiment folder" in caplog.text
