"""Invariant: two runs are compared on the same utterances, in what the corpus adds as well; and where they were not
searched alike, that is said.
"""

from pathlib import Path

import pytest

from transducer_gn.common.errors import UserError
from transducer_gn.evaluation.latency import UtteranceTimes
from transducer_gn.evaluation.latency_results import Latency
from transducer_gn.evaluation.results import Results
from transducer_gn.recognition.error_rates import Recognised, all_errors, measure
from transducer_gn.reporting.comparisons import (
    comparison_values,
    different_settings,
    error_differences,
    latency_difference,
)
from transducer_gn.reporting.extras import Extras
from transducer_gn.reporting.runs import Run


class FirstUtterance(Extras):
    """Looks at the first utterance and at first tokens alone."""

    def measures(self, utterances):
        return {"first words": measure(utterances[:1], all_errors)}

    def token_choices(self, utterances):
        return {"first words": [[n == 0 for n in range(len(u.tokens))] for u in utterances]}


def run(name, hypotheses, times=(), extras=None):
    utterances = [Recognised(f"u{n}", ["A", "B"], text.split()) for n, text in enumerate(hypotheses)]
    measured = [UtteranceTimes("u0", "ordinary", ["x"] * len(times), list(times), [], [])] if times else []
    return Run(
        name,
        Path(name),
        results={"test": Results("test", "s", {}, utterances)},
        latencies={"test": Latency("test", "s", {}, measured)} if times else {},
        extras=extras or Extras(),
    )


def test_what_the_corpus_adds_is_compared_like_the_rest():
    pair = (
        run("a", ["A X", "A B"], (0.1, 0.2), FirstUtterance()),
        run("b", ["A B", "A X"], (0.2, 0.2), FirstUtterance()),
    )
    differences = error_differences(*pair, "test")
    assert {name: d.change.value for name, d in differences.items()} == {"all": 0, "first words": -50}
    emission = latency_difference(*pair, "test").emission
    assert {name: d.change.value for name, d in emission.items()} == pytest.approx({"all": 50, "first words": 100})
    values = comparison_values(*pair, "test", None)
    assert values["error_rates"]["first words"]["relative"] == -100 and values["gap_closed"] is None
    assert list(values["latency"]["emission"]) == ["all", "first words"]


def test_times_that_cannot_be_compared_are_none_and_errors_are_refused():
    first, second = run("a", ["A B"], (0.1,)), run("b", ["A B", "A"], (0.1, 0.2))
    assert latency_difference(first, second, "test") is None
    assert latency_difference(first, run("c", ["A B"]), "test") is None
    with pytest.raises(UserError, match="test: the two systems were not decoded on the same utterances"):
        error_differences(first, second, "test")


def test_different_settings_are_pointed_out():
    def results(beam):
        return Results("test", f"epoch-1-beam-{beam}", {"settings": {"beam": beam}}, [])

    assert different_settings(results(4), results(4)) == []
    assert "epoch-1-beam-4 and epoch-1-beam-50" in different_settings(results(4), results(50))[0]


def test_limits_of_the_search_are_a_note_unless_one_is_not_known():
    def results(limit):
        return Results("test", "s", {"tokens_per_frame": limit}, [])

    (note,) = different_settings(results(3), results(1))
    assert note.startswith("Searched with at most 3 and 1 tokens per frame")
    assert (
        different_settings(results(3), results(3)) == different_settings(results(3), Results("test", "s", {}, [])) == []
    )
