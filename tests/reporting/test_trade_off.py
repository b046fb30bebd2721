"""Invariant: a curve has a point for each size of chunks that was measured, with that point's own errors and times, and
runs of the same name in folders beside are the same curve.
"""

from dataclasses import asdict
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
from transducer_gn.reporting.runs import Run
from transducer_gn.reporting.trade_off import chunk_text, find_curves, trade_off_figures, trade_off_table
from transducer_gn.synthetic.report_extras import MiniCorpusExtras

CUSTOM = {"kind": "ambiguous", "pair": ["MAIL", "NAIL"], "blend": [0.2, 0.5]}
WORDS, ENDS = ["THE", "MAIL", "ORDER"], [0.1, 0.5, 0.9]


def measure(run: Path, frames: int, wrong: int, emitted: float, delay: float, live: bool = True) -> None:
    """Four utterances as over_chunks.py measures them; `wrong` of them have an error in their ambiguous word."""
    place = CHUNKS.place(run, frames)
    for folder in ("beam_search", FOLDER):
        (place / folder).mkdir(parents=True)
    recognised, times = [], []
    for n in range(4):
        words = ["THE", "NAIL" if n < wrong else "MAIL", "ORDER"]
        recognised.append(Recognised(f"u{n}", WORDS, words, "ambiguous", f"u{n}", CUSTOM))
        history = [Shown(0.1 + delay, words[:1]), Shown(0.5 + delay, words[:2]), Shown(0.9 + delay, words)]
        pieces = [f"\u2581{word}" for word in WORDS]
        emissions = [0.1, emitted, 0.8]
        times.append(
            UtteranceTimes(
                f"u{n}", "ambiguous", pieces, emissions, [], [], CUSTOM, WORDS, ENDS, 1.0, history if live else []
            )
        )
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
    curves = find_curves(roots, "test", None)
    assert [point.chunk for point in curves["local"]] == ["160 ms", "320 ms", "640 ms"]
    assert [point.chunk for point in curves["global"]] == ["320 ms"]
    shorter, _, beside = curves["local"]
    assert shorter.values("all", "") == pytest.approx((1000 * (0.1 + 0.2 + 0.8) / 3, 100 * 3 / 12))
    # Of the ambiguous words alone, which are one in three.
    assert shorter.values("ambiguous words", "") == pytest.approx((200, 75))
    assert beside.values("all", "settled_p50_ms") == pytest.approx((600, 100 / 12))
    assert find_curves(roots, "another", None) == {}


def test_table_and_figures_show_the_points(roots):
    curves = find_curves(roots, "test", None)
    table = trade_off_table(curves, "test", None)
    row = table.rows[0]
    assert row[:2] == ["local", "160 ms"] and row[2].startswith("25.00 (") and row[3].startswith("75.00 (")
    assert row[table.columns.index("emission, ms")] == "366.7"
    assert row[table.columns.index("emission, ambiguous words")] == "200.0"
    assert row[-3:] == ["200", "200", "0.000"]
    emission, delay = trade_off_figures(curves)
    everything, ambiguous = emission.panels()
    assert ambiguous["lines"][0]["points"] == [[200, 75], [300, 50], [500, 25]]
    assert [line["label"] for line in everything["lines"]] == ["local", "global"]
    (panel,) = delay.panels()
    assert panel["lines"][1]["points"] == [[pytest.approx(400), pytest.approx(100 / 12)]]


def test_without_live_texts_there_is_no_curve_of_delays(tmp_path):
    measure(tmp_path / "local", 8, 2, 0.3, 0.3, live=False)
    curves = find_curves([[Run("local", tmp_path / "local", Config(), extras=MiniCorpusExtras())]], "test", None)
    assert [figure.name for figure in trade_off_figures(curves)] == ["errors-by-emission"]
    assert trade_off_table(curves, "test", None).rows[0][-3:] == ["–", "–", "–"]


def test_nothing_was_measured(tmp_path):
    curves = find_curves([[Run("local", tmp_path)]], "test", None)
    assert trade_off_table(curves, "test", None) is None and trade_off_figures(curves) == []


def test_what_is_heard_after_a_chunk_stands_beside_it(tmp_path):
    front_end = FrontEndConfig(kind="moonshine-tiny", right=320)
    run = Run("r", tmp_path, Config(model=ModelConfig(front_end=front_end)))
    assert chunk_text(run, 8) == "640 + 320 ms"
    assert chunk_text(Run("r", tmp_path), 8) == "8 frames"


def test_what_cannot_be_read_is_said(roots):
    broken = next(CHUNKS.place(roots[0][0].folder, 4).glob("beam_search/results-*.json"))
    broken.write_text("{")
    curves = find_curves(roots, "test", None)
    assert list(curves) == ["global", "local"] and len(curves["local"]) == 1
    assert any("does not hold results" in problem for problem in roots[0][0].problems)


def test_a_report_has_curves_of_folders_beside(root, tmp_path_factory):
    beside = tmp_path_factory.mktemp("beside")
    for name, wrong in (("local", 2), ("global", 1)):
        measure(root / name, 4, wrong, 0.2, 0.2)
        measure(beside / name, 8, wrong - 1, 0.3, 0.3)
        (beside / name / "log-0.txt").write_text("")
    output = run_script("report.py", "--exp-root", root, "--beside", f"[{beside}]").stdout
    assert "Errors against delay on test" in output
    drawn = read_json(root / "report" / "figures" / "errors-by-delay.json", dict)
    lines = {line["label"]: line["points"] for line in drawn["panels"][0]["lines"]}
    assert [round(y, 2) for _, y in lines["local"]] == [16.67, 8.33]
