"""Invariant: times of a set are measured once for the same inputs, and two systems are compared on the tokens and words
that both have.
"""

import json

import pytest

from transducer_gn.common.errors import UserError
from transducer_gn.config import LatencyConfig, RecognitionConfig
from transducer_gn.data.prepared import PreparedData
from transducer_gn.evaluation import latency_results
from transducer_gn.evaluation.decoding import spread_batches
from transducer_gn.evaluation.latency import UtteranceTimes
from transducer_gn.evaluation.latency_results import (
    Latency,
    all_but,
    compare_latency,
    find_latency,
    mean_emission,
    measure_part,
    read_latency,
)
from transducer_gn.recognition.system import load_system


def utterance(name, emitted, group="ordinary", shown=(), settled=()):
    tokens = [f"\u2581{n}" for n in range(len(emitted))]
    return UtteranceTimes(name, group, tokens, list(emitted), list(shown), list(settled))


def latency(*utterances):
    return Latency("test", "epoch-1", {}, list(utterances))


def test_differences_are_means_over_tokens_that_both_have():
    first = latency(
        utterance("a", [0.1, 0.2, None], shown=[1.0], settled=[1.0]),
        utterance("b", [0.3], "special", [2.0], [3.0]),
    )
    second = latency(
        utterance("a", [0.2, None, 0.5], shown=[0.5], settled=[None]),
        utterance("b", [0.1], "special", [2.0], [2.0]),
    )
    found = compare_latency(
        first, second, {"first of a": [[True, False, False], [False]], "none": [[False] * 3, [False]]}
    )
    changes = {name: difference.change.value for name, difference in found.emission.items()}
    assert changes == pytest.approx({"all": -50, "ordinary": 100, "special": -200, "first of a": 100})
    assert [difference.change.value for difference in found.positions] == pytest.approx([-50])
    assert found.shown.change.value == pytest.approx(-250)
    assert found.settled.change.value == pytest.approx(-1000)
    assert mean_emission(first).value == pytest.approx(200)


def test_what_was_not_measured_is_left_out():
    found = compare_latency(latency(utterance("a", [0.1])), latency(utterance("a", [0.1])))
    assert found.shown is None and found.settled is None
    assert list(found.emission) == ["all"]


def test_other_utterances_or_tokens_are_refused():
    with pytest.raises(UserError, match="same utterances"):
        compare_latency(latency(utterance("a", [0.1])), latency(utterance("b", [0.1])))
    with pytest.raises(UserError, match="different token models"):
        compare_latency(latency(utterance("a", [0.1])), latency(utterance("a", [0.1, 0.2])))


def test_a_part_of_a_set_is_spread_evenly(toy):
    data = PreparedData(toy.folder)
    assert all_but(data, "test", None) == all_but(data, "test", 8) == frozenset()
    assert all_but(data, "test", 2) == {f"test-{n}" for n in (1, 2, 3, 5, 6, 7)}


def test_utterances_that_there_are_are_counted(runs, toy, caplog):
    system, data = load_system(runs / "local"), PreparedData(toy.folder)
    for asked, there in ((3, 3), (100, 8)):
        with caplog.at_level("INFO"):
            assert sum(map(len, spread_batches(system, data, "test", asked, 4.0))) == there
        assert f"{there} utterances of test" in caplog.text
        caplog.clear()


def test_a_set_is_measured_once_and_again_for_other_inputs(runs, toy, tmp_path, monkeypatch):
    system, data, folder = load_system(runs / "global"), PreparedData(toy.folder), tmp_path / "latency"
    measured, batches = latency_results.measure_times, []

    def counted(system, batch, chunk, display, ends):
        batches.append(batch.ids)
        return measured(system, batch, chunk, display, ends)

    monkeypatch.setattr(latency_results, "measure_times", counted)

    def measure(utterances):
        settings = LatencyConfig(display=False, utterances=utterances)
        return measure_part(folder, system, RecognitionConfig(beam=2), settings, data, "test", 4.0)

    first = measure(3)
    assert len(first.utterances) == sum(map(len, batches)) == 3
    assert all(u.shown == u.settled == [] for u in first.utterances)
    (path,) = find_latency(tmp_path).values()
    assert measure(3) == first == read_latency(path) and sum(map(len, batches)) == 3
    assert json.loads(path.read_text())["emission_ms"]["value"] == pytest.approx(mean_emission(first).value)
    assert len(measure(2).utterances) == 2 and sum(map(len, batches)) == 5


@pytest.mark.parametrize("name", ["tokens", "emitted", "shown", "settled", "ends", "text"])
def test_an_utterance_with_more_times_than_tokens_or_words_is_no_result(tmp_path, name):
    """They were paired one by one, which ended in a traceback, when something was made of them."""
    times = {"tokens": ["A"], "emitted": [0.5], "shown": [0.5], "settled": [None], "text": ["A"], "ends": [0.4]}
    entry = {"id": "a", "group": "x", "custom": {}} | times
    content = {"part": "test", "system": "epoch-1", "identity": {}, "utterances": [entry]}
    (tmp_path / "x.json").write_text(json.dumps(content))
    assert read_latency(tmp_path / "x.json").utterances[0].emitted == [0.5]
    entry[name] *= 2
    (tmp_path / "x.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="x.json does not hold results of compute_latency.py"):
        read_latency(tmp_path / "x.json")


def test_a_file_of_something_else_is_named(tmp_path):
    (tmp_path / "x.json").write_text('{"utterances": [{}]}')
    with pytest.raises(UserError, match="x.json does not hold results of compute_latency.py"):
        read_latency(tmp_path / "x.json")
