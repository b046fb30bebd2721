"""Invariant: tables of live text have all measures, say where ends of words come from, and what steadiness costs."""

from dataclasses import replace
from pathlib import Path

from transducer_gn.evaluation.latency import UtteranceTimes
from transducer_gn.evaluation.latency_results import Latency, compare_latency
from transducer_gn.recognition.display_policy import Shown
from transducer_gn.reporting.runs import Run
from transducer_gn.reporting.stability_tables import (
    LABELS,
    aligner_of,
    display_measures,
    price_table,
    runs_stability_table,
    stability_rows,
    stability_table,
)
from transducer_gn.reporting.tables import latency_rows


def latency(*texts: str, ends: tuple[float, ...] = (0.5, 1.5), name: str = "u") -> Latency:
    history = [Shown(float(n), text.split(), stable=0) for n, text in enumerate(texts, start=1)]
    times = UtteranceTimes(
        name, "", ["\u2581A", "\u2581B"], [0.2, 0.4], [1.0, 2.0], [1.0, 2.0], {}, ["A", "B"], list(ends), 3.0, history
    )
    return Latency("test", "epoch-1", {}, [times])


STEADY, RESTLESS = latency("A", "A B", "A B"), latency("X", "A X", "A B")


def test_one_system_has_every_measure_with_an_interval() -> None:
    table = stability_table([STEADY], [], "x")
    assert [row[0] for row in table.rows] == [f"test, {label}" for label, _ in LABELS.values()]
    cells = {row[0]: row[1:] for row in table.rows}
    assert cells["test, word first shown after its end, p50, ms"] == ["500", "500 to 500"]
    # Without a revision there is no distance back.
    assert cells["test, words back per revision"] == ["–", "–"]
    assert "corpus's alignments" in table.notes[0]


def test_without_alignments_the_table_says_who_aligned() -> None:
    own, baseline = latency("A", "A B", "A B", ends=()), latency("", "", "A B", ends=())
    table = stability_table([own], [baseline], "local")
    assert "where local expects its last token" in table.notes[0]
    assert aligner_of(own, baseline) is baseline
    assert aligner_of(own, latency("A B", name="other")) is own and aligner_of(own, None) is own


def test_without_a_live_run_there_is_no_table() -> None:
    silent = replace(STEADY, utterances=[replace(STEADY.utterances[0], history=[])])
    assert stability_table([silent], [], "x") is None
    run = Run("a", Path("a"), latencies={"test": silent})
    assert runs_stability_table([run], None, "test") is None and runs_stability_table([], None, "test") is None


def test_steadier_text_comes_later() -> None:
    measures = display_measures(RESTLESS, RESTLESS, [1000])
    table = price_table("test", measures)
    cells = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert list(cells) == ["everything", "what was best for 1000 ms", "only what is stable"]
    assert cells["everything"]["revisions/word"] == "1.000"
    assert cells["what was best for 1000 ms"]["revisions/word"] == cells["only what is stable"]["revisions/word"]
    assert [row["shown p50"] for row in cells.values()] == ["1500", "1500", "1500"]
    assert [row["erasure"] for row in cells.values()] == ["1.000", "0.000", "0.000"]


def test_runs_stand_side_by_side_and_two_are_compared_in_the_key_table() -> None:
    runs = [Run("local", Path("l"), latencies={"test": STEADY}), Run("global", Path("g"), latencies={"test": RESTLESS})]
    table = runs_stability_table(runs, runs[0], "test")
    assert [row[:3] for row in table.rows] == [["local", "0.000", "0.000"], ["global", "0.500", "1.000"]]
    difference = compare_latency(STEADY, RESTLESS)
    rows = stability_rows(difference.stability)
    assert rows[1][:4] == ["normalised erasure", "0.000", "1.000", "+1.000"]
    assert latency_rows(difference, [])[-len(rows) :] == rows
    assert "word last changed, ms" in [row[0] for row in latency_rows(difference, [])]
