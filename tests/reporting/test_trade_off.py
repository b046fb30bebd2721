"""Invariant: a curve has a point for each size of chunks that was measured, with that point's own errors and times, and
runs of the same name in folders beside are the same curve.
"""

from dataclasses import asdict, replace
from pathlib import Path

import pytest
from scripts import run_script

from transducer_gn.common.json_files import read_json, write_json
from transducer_gn.config import Config, FrontEndConfig, ModelConfig
from transducer_gn.evaluation.latency import UtteranceTimes
from transducer_gn.evaluation.latency_results import FOLDER, Latency
from transducer_gn.evaluation.results import Results, write_results
from transducer_gn.evaluation.sweeps import CHUNKS
from transducer_gn.recognition.display_policy import Shown
from transducer_gn.recognition.error_rates import Recognised
from transducer_gn.reporting.operating_points import TradeOff, chunk_text, find_trade_off
from transducer_gn.reporting.page import html_page
from transducer_gn.reporting.runs import Run
from transducer_gn.reporting.trade_off import trade_off_figures, trade_off_table
from transducer_gn.synthetic.report_extras import MiniCorpusExtras

CUSTOM = {"kind": "ambiguous", "pair": ["MAIL", "NAIL"], "blend": [0.2, 0.5]}
WORDS, ENDS = ["THE", "MAIL", "ORDER"], [0.1, 0.5, 0.9]


def measure(
    run: Path,
    frames: int,
    wrong: int,
    emitted: float,
    delay: float,
    live: bool = True,
    ends: bool = True,
    count: int = 4,
) -> None:
    """Utterances as over_chunks.py measures them; `wrong` of them have an error in their ambiguous word."""
    place = CHUNKS.place(run, frames)
    for folder in ("beam_search", FOLDER):
        (place / folder).mkdir(parents=True)
    recognised, times = [], []
    for n in range(count):
        words = ["THE", "NAIL" if n < wrong else "MAIL", "ORDER"]
        recognised.append(Recognised(f"u{n}", WORDS, words, "ambiguous", f"u{n}", CUSTOM))
        history = [Shown(0.1 + delay, words[:1]), Shown(0.5 + delay, words[:2]), Shown(0.9 + delay, words)]
        pieces = [f"\u2581{word}" for word in WORDS]
        known = (WORDS, ENDS if ends else [], 1.0, history if live else [])
        times.append(UtteranceTimes(f"u{n}", "ambiguous", pieces, [0.1, emitted, 0.8], [], [], CUSTOM, *known))
    write_results(place / "beam_search", Results("test", "s", {}, recognised))
    write_json(place / FOLDER / "latency-test-s.json", asdict(Latency("test", "s", {}, times)))


@pytest.fixture
def roots(tmp_path: Path) -> list[list[Run]]:
    """Two systems measured with two sizes of chunks, and the first in a folder beside, trained for another."""
    for place, frames, wrong, emitted, delay in (
        ("a/local", 8, 2, 0.3, 0.3),
        ("a/local", 4, 3, 0.2, 0.2),
        ("a/global", 8, 1, 0.25, 0.4),
        ("b/local", 16, 1, 0.5, 0.6),
    ):
        measure(tmp_path / place, frames, wrong, emitted, delay)
    config, extras = Config(), MiniCorpusExtras()
    runs = [Run(name, tmp_path / "a" / name, config, extras=extras) for name in ("local", "global")]
    return [runs, [Run("local", tmp_path / "b" / "local", config, extras=extras)]]


def test_every_point_has_its_own_errors_and_times(roots):
    found = find_trade_off(roots, "test", None)
    points = {name: [point for point in found.points if point.run == name] for name in ("local", "global")}
    assert [point.chunk for point in points["local"]] == ["160 ms", "320 ms", "640 ms"]
    assert [point.chunk for point in points["global"]] == ["320 ms"]
    shorter, _, beside = points["local"]
    assert shorter.place("all", "") == pytest.approx((1000 * (0.1 + 0.2 + 0.8) / 3, 100 * 3 / 12))
    # Of the ambiguous words alone, which are one in three.
    assert shorter.place("ambiguous words", "") == pytest.approx((200, 75))
    assert beside.place("all", "settled_p50_ms") == pytest.approx((600, 100 / 12))
    assert found.values()[0]["errors"]["all"]["value"] == 25
    assert find_trade_off(roots, "another", None) == TradeOff()


def test_table_and_figures_show_the_points(roots):
    found = find_trade_off(roots, "test", None)
    table = trade_off_table(found, "test")
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["run"] == "local" and row["chunk"] == "160 ms" and row["folder"].endswith("/a")
    assert row["all words, %"].startswith("25.00 (") and row["ambiguous words, %"].startswith("75.00 (")
    assert row["emission, ms"].startswith("366.7 (") and row["emission, ambiguous words"].startswith("200.0 (")
    assert [row[name].split()[0] for name in ("last changed, p50, ms", "p90", "revisions/word")] == [
        "200",
        "200",
        "0.000",
    ]
    emission, delay = trade_off_figures(found)
    everything, ambiguous = emission.panels()
    assert ambiguous["lines"][0]["points"] == [[200, 75], [300, 50], [500, 25]]
    assert [line["label"] for line in everything["lines"]] == ["local", "global"]
    panel, ambiguous = delay.panels()
    assert panel["lines"][1]["points"] == [[pytest.approx(400), pytest.approx(100 / 12)]]
    # All words come equally late here; the wrong ones have no time.
    assert ambiguous["lines"][1]["points"] == [[pytest.approx(400), 25]]
    assert row["last changed, ambiguous words"].startswith("200 (")


def test_delays_of_words_that_count_apart_are_their_own(tmp_path):
    measure(tmp_path / "local", 8, 0, 0.3, 0.3)
    path = CHUNKS.place(tmp_path / "local", 8) / FOLDER / "latency-test-s.json"
    content = read_json(path, dict)
    shown = [(0.4, ["THE"]), (0.9, ["THE", "NAIL"]), (1.2, ["THE", "NAIL", "ORDER"]), (1.5, WORDS)]
    for utterance in content["utterances"]:
        utterance["history"] = [asdict(Shown(*moment)) for moment in shown]
    write_json(path, content)
    (point,) = find_trade_off(alone(tmp_path / "local"), "test", None).points
    assert point.delays["all"] == point.live["settled_p50_ms"]
    assert {name: value.value for name, value in point.delays.items()} == pytest.approx(
        {"all": 300, "ambiguous words": 1000}
    )


def alone(folder: Path) -> list[list[Run]]:
    return [[Run(folder.name, folder, Config(), extras=MiniCorpusExtras())]]


def test_without_live_texts_there_is_no_curve_of_delays(tmp_path):
    measure(tmp_path / "local", 8, 2, 0.3, 0.3, live=False)
    found = find_trade_off(alone(tmp_path / "local"), "test", None)
    assert [figure.name for figure in trade_off_figures(found)] == ["errors-by-emission"]
    assert trade_off_table(found, "test").rows[0][-3:] == ["–", "–", "–"]


def test_where_the_corpus_says_no_ends_the_baseline_aligns(tmp_path):
    # The last tokens of its words are emitted at 0.1, 0.3 and 0.8 s, and words come half a second after 0.1, 0.5, 0.9.
    measure(tmp_path / "local", 8, 0, 0.3, 0.3, ends=False)
    measure(tmp_path / "global", 8, 0, 0.9, 0.5, ends=False)
    (baseline,), runs = alone(tmp_path / "local")[0], alone(tmp_path / "global")
    (point,) = find_trade_off(runs, "test", baseline).points
    assert point.live["settled_p50_ms"].value == pytest.approx(600)
    assert "a word ends where local expects" in trade_off_table(find_trade_off(runs, "test", baseline), "test").text()


def test_utterances_that_the_baseline_lacks_have_no_delays(tmp_path):
    measure(tmp_path / "local", 8, 0, 0.3, 0.3, ends=False, count=2)
    measure(tmp_path / "global", 8, 0, 0.9, 0.5, ends=False)
    (baseline,), runs = alone(tmp_path / "local")[0], alone(tmp_path / "global")
    found = find_trade_off(runs, "test", baseline)
    # How steady a text is needs no ends of words.
    assert found.points[0].delays == {} and list(found.points[0].live) == ["revisions_per_word"]
    assert "was measured on other utterances" in found.notes[0]


def test_why_nothing_aligns_is_said(tmp_path):
    measure(tmp_path / "global", 8, 0, 0.9, 0.5, ends=False)
    runs = alone(tmp_path / "global")
    assert "there is no baseline" in find_trade_off(runs, "test", None).notes[0]
    unmeasured = Run("local", tmp_path / "local")
    assert "no times were measured of the baseline" in find_trade_off(runs, "test", unmeasured).notes[0]


def identify(run: Run, frames: int, **identity) -> None:
    """Say what a point was measured with, in both of its files."""
    for path in CHUNKS.place(run.folder, frames).glob("*/*.json"):
        write_json(path, read_json(path, dict) | {"identity": identity})


def test_chunks_of_different_parameters_are_said(roots):
    identify(roots[0][0], 4, parameters="others")
    assert any("different parameters" in note for note in find_trade_off(roots, "test", None).notes)


def test_points_that_were_searched_in_other_ways_are_said(roots):
    local, other = roots[0]
    for frames in (4, 8):
        identify(local, frames, settings={"beam": 4, "left_context": 64, "chunk": frames})
    identify(other, 8, settings={"beam": 4, "left_context": 64, "chunk": 8})
    identify(roots[1][0], 16, settings={"beam": 4, "left_context": 64, "chunk": 16})
    assert not any("different" in note for note in find_trade_off(roots, "test", None).notes)
    identify(other, 8, settings={"beam": 8, "left_context": 64, "chunk": 8})
    (note,) = [note for note in find_trade_off(roots, "test", None).notes if "different" in note]
    assert note.startswith("Runs were measured with different beam:")
    identify(local, 8, settings={"beam": 4, "left_context": 32, "chunk": 8})
    notes = find_trade_off(roots, "test", None).notes
    assert f"{local.folder}: chunks were measured with different left context; measure all again" in notes


def test_times_are_of_utterances_that_all_points_have(tmp_path):
    measure(tmp_path / "local", 8, 0, 0.3, 0.3)
    measure(tmp_path / "global", 8, 0, 0.9, 0.5)
    path = CHUNKS.place(tmp_path / "local", 8) / FOLDER / "latency-test-s.json"
    content = read_json(path, dict)
    content["utterances"] = content["utterances"][:3]
    content["utterances"][0]["emitted"] = [0.1, 0.9, 0.8]
    write_json(path, content)
    other = CHUNKS.place(tmp_path / "global", 8) / FOLDER / "latency-test-s.json"
    content = read_json(other, dict)
    content["utterances"][3]["emitted"] = [9.0, 9.0, 9.0]
    write_json(other, content)
    (run,), (beside,) = alone(tmp_path / "local")[0], alone(tmp_path / "global")[0]
    found = find_trade_off([[run, beside]], "test", None)
    assert "Times are those of the 3 utterances that were measured with all points." in found.notes
    assert found.points[0].emission["ambiguous words"].value == pytest.approx(500)
    assert found.points[1].emission["all"].value == pytest.approx(600)
    content["utterances"] = content["utterances"][3:]
    write_json(other, content)
    found = find_trade_off([[run, beside]], "test", None)
    assert any("Times of some points are of other utterances" in note for note in found.notes)
    assert found.points[1].emission["all"].value == pytest.approx(9000)


def test_other_utterances_and_other_tokens_are_said(tmp_path):
    measure(tmp_path / "local", 8, 0, 0.3, 0.3)
    measure(tmp_path / "global", 8, 0, 0.9, 0.5, count=3)
    path = CHUNKS.place(tmp_path / "local", 8) / FOLDER / "latency-test-s.json"
    content = read_json(path, dict)
    content["utterances"][0]["tokens"] = ["\u2581THE", "\u2581MAI", "L"]
    write_json(path, content)
    runs = [alone(tmp_path / name)[0][0] for name in ("local", "global")]
    notes = find_trade_off([runs], "test", None).notes
    assert sum("Errors of some points are on other utterances" in note for note in notes) == 1
    assert sum("different tokens" in note for note in notes) == 1


def test_a_run_looks_the_same_in_every_panel(roots):
    found = find_trade_off(roots, "test", None)
    first, *others = found.points
    # The first run has no emission time of all words, and so is not in the first panel.
    lacking = [
        replace(p, emission={"ambiguous words": p.emission["ambiguous words"]})
        for p in found.points
        if p.run == first.run
    ]
    points = [*lacking, *(point for point in others if point.run != first.run)]
    drawn, delays = trade_off_figures(TradeOff(points))
    looks = [{line.get_label(): line.get_color() for line in axis.lines} for axis in drawn.figure.axes]
    assert list(looks[0]) == ["global"] and looks[0]["global"] == looks[1]["global"] != looks[1]["local"]
    (legend,) = drawn.figure.legends
    shown = dict(
        zip((text.get_text() for text in legend.texts), (x.get_color() for x in legend.get_lines()), strict=True)
    )
    assert shown == looks[1]
    assert {line.get_label(): line.get_color() for line in delays.figure.axes[0].lines} == shown


def test_nothing_was_measured(tmp_path):
    found = find_trade_off([[Run("local", tmp_path)]], "test", None)
    assert trade_off_table(found, "test") is None and trade_off_figures(found) == []


def test_what_is_heard_after_a_chunk_stands_beside_it(tmp_path):
    front_end = FrontEndConfig(kind="moonshine-tiny", right=320)
    run = Run("r", tmp_path, Config(model=ModelConfig(front_end=front_end)))
    assert chunk_text(run, 8) == "640 + 320 ms"
    assert chunk_text(Run("r", tmp_path), 8) == "8 frames"


def test_what_cannot_be_read_is_said(roots):
    broken = next(CHUNKS.place(roots[0][0].folder, 4).glob("beam_search/results-*.json"))
    broken.write_text("{")
    found = find_trade_off(roots, "test", None)
    assert sorted(point.run for point in found.points) == ["global", "local"]
    assert "does not hold results" in trade_off_table(found, "test").text()


def test_why_there_is_no_point_is_said(tmp_path):
    measure(tmp_path / "local", 8, 0, 0.3, 0.3)
    next(CHUNKS.place(tmp_path / "local", 8).glob("beam_search/results-*.json")).write_text("{")
    found = find_trade_off(alone(tmp_path / "local"), "test", None)
    table = trade_off_table(found, "test")
    assert found.points == [] and table.rows == [] and "does not hold results" in table.text()
    assert "does not hold results" in html_page("t", None, [table], [])


def test_a_report_has_curves_of_folders_beside(root, tmp_path_factory):
    beside = tmp_path_factory.mktemp("beside")
    for name, wrong in (("local", 2), ("global", 1)):
        measure(root / name, 4, wrong, 0.2, 0.2)
        measure(beside / name, 8, wrong - 1, 0.3, 0.3)
        (beside / name / "log-0.txt").write_text("")
    output = run_script("report.py", "--exp-root", root, "--beside", f"[{beside}]").stdout
    assert "Errors against delay on test" in output
    values = read_json(root / "report" / "report.json", dict)["trade_off"]
    assert [(point["run"], point["chunk"]) for point in values][-1] == ("local", "8 frames")
    drawn = read_json(root / "report" / "figures" / "errors-by-delay.json", dict)
    lines = {line["label"]: line["points"] for line in drawn["panels"][0]["lines"]}
    assert [round(y, 2) for _, y in lines["local"]] == [16.67, 8.33]
