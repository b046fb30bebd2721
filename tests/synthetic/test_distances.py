"""Invariant: distances are counted in words between the ambiguous word and the one that settles it; what is measured at
a distance is that of its utterances alone, with times from the end of the ambiguous sound.
"""

from dataclasses import dataclass

import pytest

from transducer_gn.evaluation.latency import UtteranceTimes
from transducer_gn.evaluation.latency_results import Latency
from transducer_gn.evaluation.results import Results
from transducer_gn.evaluation.sweeps import Point
from transducer_gn.recognition.error_rates import Recognised
from transducer_gn.reporting.extras import Evaluated
from transducer_gn.synthetic import distance_report
from transducer_gn.synthetic.distances import by_distance, delays, distance_of
from transducer_gn.synthetic.report_extras import MiniCorpusExtras

CUSTOM = {"kind": "ambiguous", "pair": ["MAIL", "NAIL"], "blend": [0.2, 0.5]}
NEAR, NEXT = "THE MAIL ORDER", "A NAIL AND POLISH"


def recognised(name, reference, hypothesis, custom=CUSTOM):
    return Recognised(name, reference.split(), hypothesis.split(), custom.get("kind", "ordinary"), name, custom)


def timed(name, reference, emitted, shown, settled, custom=CUSTOM):
    tokens = [f"\u2581{word}" for word in reference.split()]
    return UtteranceTimes(name, custom.get("kind", "ordinary"), tokens, emitted, shown, settled, custom)


RESULTS = Results(
    "test",
    "epoch-1",
    {},
    [
        recognised("1", NEAR, "THE NAIL ORDER"),
        recognised("2", NEAR, NEAR),
        recognised("3", NEXT, NEXT),
        recognised("4", "A B", "A", {}),
        recognised("5", "THE MAIL SO", "THE NAIL SO", CUSTOM | {"kind": "control"}),
    ],
)
LATENCY = Latency(
    "test",
    "epoch-1",
    {},
    [
        timed("1", NEAR, [0.1, 0.7, 0.9], [0.3, None, 1.0], [0.3, None, 1.0]),
        timed("2", NEAR, [0.1, 0.9, 0.9], [0.3, 0.8, 1.0], [0.3, 1.2, 1.0]),
        timed("3", NEXT, [0.1, 0.6, 0.8, None], [0.3, 0.8, 1.0, 1.0], [0.3, 0.9, 1.0, 1.0]),
        timed("4", "A B", [0.1, 9.0], [0.1, 9.0], [0.1, 9.0], {}),
    ],
)


@pytest.mark.parametrize(
    ("text", "change", "distance"),
    [
        (NEAR, {}, 0),
        (NEXT, {}, 1),
        ("MAIL A B C D E F ORDER NOW", {}, 6),
        ("THE NAIL ORDER", {}, None),  # ORDER settles MAIL
        ("ORDER MAIL", {}, None),
        (NEAR, {"kind": "control"}, None),
        (NEAR, {"pair": []}, None),
        ("THE HONEY BEE", {"pair": ["HONEY", "MONEY"]}, None),  # no pair of this corpus
    ],
)
def test_distance_is_the_number_of_words_between(text, change, distance):
    assert distance_of(text.split(), CUSTOM | change) == distance


def test_measures_are_of_the_utterances_of_a_distance():
    near, after_one, together = by_distance(RESULTS, LATENCY)
    assert [x.distance for x in (near, after_one, together)] == [0, 1, None]
    assert [x.words for x in (near, after_one, together)] == [2, 1, 3]
    assert [x.errors.value for x in (near, after_one, together)] == pytest.approx([50, 0, 100 / 3])
    # The ambiguous sound ends at 0.5 s.
    assert [x.emission.value for x in (near, after_one, together)] == pytest.approx([300, 100, 700 / 3])
    assert near.all_tokens.value == pytest.approx(1000 * (0.1 + 0.7 + 0.9 + 0.1 + 0.9 + 0.9) / 6)
    assert after_one.all_tokens.value == pytest.approx(500)
    assert (near.shown.median, near.settled.median) == pytest.approx((300, 700))
    assert (together.shown.late, together.settled.late) == pytest.approx((300, 670))


def test_delays_are_quantiles_of_what_is_there():
    found = delays([0.1 * n for n in range(11)] + [None])
    assert (found.median, found.late) == pytest.approx((500, 900))


def test_without_times_there_are_errors_alone():
    near = by_distance(RESULTS, None)[0]
    assert near.errors.value == 50 and near.emission.value != near.emission.value and near.shown.late != near.shown.late
    row = distance_report.cells(near)
    assert row[:3] == ["0", "2", "50.0 (0.0 to 100.0)"] and row[3:] == ["–"] * 6


def test_the_table_has_a_row_for_each_system_and_distance(tmp_path):
    system = Evaluated("local", tmp_path, RESULTS, LATENCY)
    table = distance_report.distance_table([system, system])
    assert [row[:3] for row in table.rows] == 2 * [["local", "0", "2"], ["local", "1", "1"], ["local", "all", "3"]]
    assert table.rows[1][4:] == ["100 (100 to 100)", "500 (500 to 500)", "300", "300", "400", "400"]
    ordinary = Results("test", "epoch-1", {}, RESULTS.utterances[3:])
    assert distance_report.distance_table([Evaluated("local", tmp_path, ordinary, None)]) is None


@dataclass(frozen=True)
class Measured:
    """A sweep of which these points were measured."""

    points: list[Point]

    def find(self, exp_dir, part):
        return self.points


def test_the_figure_follows_each_distance_over_epochs(tmp_path, monkeypatch):
    better = Results("test", "epoch-2", {}, [recognised("1", NEAR, NEAR), *RESULTS.utterances[1:]])
    epochs = [Point(1, RESULTS, LATENCY), Point(2, better, LATENCY)]
    monkeypatch.setattr(distance_report, "EPOCHS", Measured(epochs))
    figure = distance_report.training_figure([Evaluated("local", tmp_path, RESULTS, LATENCY)])
    errors, emission, shown = figure.panels()
    assert [line["label"] for line in errors["lines"]] == ["local, distance 0", "local, distance 1"]
    assert errors["lines"][0]["points"] == [[1.0, 50.0], [2.0, 0.0]]
    assert emission["lines"][1]["points"] == [[1.0, pytest.approx(100)], [2.0, pytest.approx(100)]]
    assert shown["lines"][0]["points"][0] == [1.0, pytest.approx(300)]
    monkeypatch.setattr(distance_report, "EPOCHS", Measured(epochs[:1]))
    assert distance_report.training_figure([Evaluated("local", tmp_path, RESULTS, LATENCY)]) is None


def test_few_distances_are_compared_apart_and_many_are_not():
    extras = MiniCorpusExtras()
    names = ["ambiguous words", "control words", "ambiguous, distance 0, words", "ambiguous, distance 1, words"]
    found = extras.measures(RESULTS.utterances)
    assert list(found) == names and [found[name].rate for name in names[2:]] == [50, 0]
    chosen = extras.token_choices(LATENCY.utterances)
    assert chosen["ambiguous, distance 1, words"] == [
        [False] * 3,
        [False] * 3,
        [False, True, False, False],
        [False] * 2,
    ]
    assert set(names[2:]) <= set(extras.key_tokens)
    many = [*RESULTS.utterances, recognised("6", "MAIL A B ORDER", "MAIL A B ORDER")]
    assert list(extras.measures(many)) == names[:2]
