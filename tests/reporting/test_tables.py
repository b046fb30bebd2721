"""Invariant: tables of a report say on what terms their numbers can be compared, and show what the corpus adds."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from transducer_gn.evaluation.bootstrap import Difference, Interval
from transducer_gn.evaluation.latency_results import LatencyDifference
from transducer_gn.evaluation.results import Results, find_results
from transducer_gn.recognition.error_rates import Recognised, all_errors, measure
from transducer_gn.reporting import tables
from transducer_gn.reporting.comparisons import gap_closed
from transducer_gn.reporting.extras import Extras
from transducer_gn.reporting.runs import Run, find_runs

WORDS = 4


class LastUtterance(Extras):
    """Looks at the last utterance."""

    key_tokens = ("last words",)
    measures_note = "The last column is about the last utterance."

    def measures(self, utterances):
        return {"last words": measure(utterances[-1:], all_errors)}

    def key_notes(self, differences):
        return [f"Last: {differences['last words'].change.value:g}."]


def run(name: str, errors: list[int], extras: Extras | None = None) -> Run:
    """A run that makes so many errors in each utterance of four words."""
    utterances = [
        Recognised(f"u{n}", ["A"] * WORDS, ["A"] * (WORDS - count) + ["B"] * count) for n, count in enumerate(errors)
    ]
    return Run(name, Path(name), results={"test": Results("test", "s", {}, utterances)}, extras=extras or Extras())


def test_what_the_corpus_adds_stands_in_the_key_table_and_in_that_of_groups():
    first, second = run("a", [1, 2], LastUtterance()), run("b", [1, 1], LastUtterance())
    key = tables.key_table(first, second, "test")
    assert [row[:4] for row in key.rows] == [
        ["all words", "37.50", "25.00", "-12.50"],
        ["last words", "50.00", "25.00", "-25.00"],
    ]
    assert key.notes[-1] == "Last: -25."
    groups = tables.groups_table([first, second], "test")
    assert groups.columns == ["run", "last words"] and [row[1] for row in groups.rows] == [
        "50.0 (50.0 to 50.0)",
        "25.0 (25.0 to 25.0)",
    ]
    assert groups.notes == ["With 95 % intervals. The last column is about the last utterance."]
    assert tables.groups_table([run("a", [1])], "test") is None


def test_emission_times_of_chosen_tokens_stand_in_the_key_table():
    change = Difference(100.0, 90.0, Interval(-10.0, -12.0, -8.0), 0.2)
    latency = LatencyDifference({"all": change, "x": change, "y": change}, [], None, change)
    assert [row[0] for row in tables.latency_rows(latency, ["y", "z"])] == [
        "emission, all tokens, ms",
        "emission, y, ms",
        "word last changed, ms",
    ]


def test_share_of_the_gap_to_lookahead():
    local, streaming = run("local", [1, 2, 0, 4]), run("global", [0, 1, 0, 3])
    closed = gap_closed(local, streaming, run("lookahead", [0, 1, 0, 0]), "test")
    assert closed.value == pytest.approx(100 * 3 / 6)
    assert closed.low <= closed.value <= closed.high and not math.isnan(closed.low)
    assert gap_closed(local, streaming, local, "test") is None
    assert gap_closed(local, streaming, run("lookahead", [0]), "test") is None
    table = tables.key_table(local, replace(streaming, name="streaming"), "test", run("lookahead", [0, 1, 0, 0]))
    assert any("streaming closes 50 %" in note and "6.25 %" in note for note in table.notes)


def test_an_alpha_on_its_way_is_pointed_out(root):
    run = {run.name: run for run in find_runs(root)}["global"]
    at = {"test": Results("test", "epoch-2", {"alpha": 0.75}, run.results["test"].utterances)}
    assert tables.alpha_notes(type(run)(**vars(run) | {"results": at})) == ["global is decoded at alpha 0.75, not 0.5."]
    assert tables.alpha_notes(run) == []


def decoded(name: str, system: str, **best: object) -> Run:
    """A run whose best epoch is 4 of 6, decoded with the parameters that `system` names."""
    made = run(name, [1, 2])
    results = {"test": replace(made.results["test"], system=system)}
    return replace(made, results=results, best={"epoch": 4, "wer": 20.0, "last_epoch": 6} | best)


@pytest.mark.parametrize(
    ("system", "text"),
    [
        ("epoch-4-streaming-chunk-size-8-left-context-64-beam-8", "its epoch of lowest error rate on the dev set"),
        (
            "epoch-6-avg-1-streaming-chunk-size-8-left-context-64-beam-8",
            "its last epoch, parameters averaged over 1 epoch",
        ),
        ("epoch-4-avg-2-lookahead-greedy", "epoch 4, parameters averaged over 2 epochs"),
        ("epoch-6-lookahead-greedy", "its last epoch"),
        ("epoch-3", "epoch 3"),
        ("checkpoint-70-lookahead-greedy", "what checkpoint-70-lookahead-greedy names"),
    ],
)
def test_the_note_on_epochs_is_what_results_were_made_with(system, text):
    runs = [decoded("a", system), decoded("b", system)]
    assert tables.results_table(runs, None).notes[0] == f"Each system at {text}."


def test_systems_of_different_epochs_are_named():
    runs = [decoded("a", "epoch-4"), decoded("b", "epoch-6-avg-1"), decoded("c", "epoch-6", epoch=6, wer=None)]
    assert tables.results_table(runs, None).notes[0] == (
        "a at its epoch of lowest error rate on the dev set; b at its last epoch, parameters averaged over 1 epoch; "
        "c at its last epoch, for want of a dev set."
    )


def test_without_a_dev_set_epochs_are_whole_and_the_last_one_is_named(root):
    for name in ("local", "global"):
        path = root / name / "best.json"
        best = json.loads(path.read_text())
        path.write_text(json.dumps(best | {"wer": None, "epoch": best["last_epoch"]}))
        (results,) = find_results(root / name).values()
        results.write_text(json.dumps(json.loads(results.read_text()) | {"system": f"epoch-{best['last_epoch']}"}))
        metrics = root / name / "metrics.jsonl"
        rows = [line for line in metrics.read_text().splitlines() if json.loads(line)["kind"] == "train"]
        metrics.write_text("\n".join(rows[:1]) + "\n")
    found = find_runs(root)
    assert [run.train[-1]["epoch"] % 1 > 0 and run.epochs == run.best["last_epoch"] for run in found] == [True, True]
    assert "at its last epoch, for want of a dev set" in tables.results_table(found, None).text()
