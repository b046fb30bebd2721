"""Invariant: a report shows all that can be read and says what cannot; tables, JSON and page hold the same numbers."""

import base64
import json
import re

import pytest
from scripts import run_script

from transducer_gn.common.errors import UserError
from transducer_gn.reporting import tables
from transducer_gn.reporting.published import PAPER_SYSTEMS, PUBLIC_SYSTEMS
from transducer_gn.reporting.report import make_report, write_report
from transducer_gn.reporting.runs import find_runs, headline_set


def test_report_of_real_runs(root, toy):
    output = run_script("report.py", "--exp-root", root).stdout
    assert "Local against global on test" in output
    assert re.search(r"ambiguous words +50\.00 +0\.00 +-50\.00", output)
    assert "compute_latency" not in output
    values = json.loads((root / "report" / "report.json").read_text())
    assert values["runs"]["local"]["error_rates"]["test"]["ambiguous words"]["rate"] == 50
    assert values["comparison"]["error_rates"]["ambiguous words"]["change"]["value"] == -50
    assert values["runs"]["global"]["alpha"] == 0.5
    assert (root / "report" / "report.txt").read_text() in output
    page = (root / "report" / "report.html").read_text()
    assert "50.00" in page and "<script" not in page
    assert not re.search(r'(src|href)="(?!data:)', page)
    images = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', page)
    names = {path.stem for path in (root / "report" / "figures").glob("*.svg")}
    assert {"regulariser", "interpolation", "wer-by-alpha"} <= names
    assert len(images) == len(names) == len(list((root / "report" / "figures").glob("*.png")))
    assert all(b"<svg" in base64.b64decode(image) for image in images)
    drawn = json.loads((root / "report" / "figures" / "wer-by-alpha.json").read_text())["panels"][0]
    lines = {line["label"]: line["points"] for line in drawn["lines"]}
    rows = [json.loads(line) for line in (root / "local" / "metrics.jsonl").read_text().splitlines()]
    assert lines["local"] == [[row["epoch"], row["wer"]] for row in rows if row["kind"] == "valid"]
    assert drawn["x"] == "epoch" and lines["alpha 0.5"][-1][0] == 4


def test_what_is_broken_is_said_and_the_rest_is_shown(root):
    metrics = root / "global" / "metrics.jsonl"
    metrics.write_text(metrics.read_text() + '{"kind": "train", "step"\n[]\n')
    (root / "global" / "best.json").write_text("{")
    (root / "local" / "epoch-3.pt").write_bytes(b"broken")
    (root / "empty").mkdir()
    (root / "empty" / "log-0.txt").write_text("")
    (next((root / "local" / "beam_search").glob("results-*.json"))).write_text("{")
    found = {run.name: run for run in find_runs(root)}
    problems = {name: " | ".join(run.problems) for name, run in found.items()}
    lines = len(metrics.read_text().splitlines())
    assert f"metrics.jsonl: cannot read line {lines - 1}, {lines}; the rest is shown" in problems["global"]
    assert "best.json cannot be read" in problems["global"] and "still in progress" in problems["global"]
    assert "epoch-3.pt is damaged" in problems["local"] and "does not hold results" in problems["local"]
    assert "no checkpoint yet" in problems["empty"] and "no metrics.jsonl" in problems["empty"]
    assert found["global"].train and found["local"].step > 0
    report = make_report("t", list(found.values()), found["local"], found["global"], None)
    assert report.key is None
    assert "cannot read line" in report.text() and "local: not decoded yet" in report.text()
    assert "global" in tables.results_table(list(found.values()), None).text()
    assert write_report(report, root / "report").is_file()


def test_no_runs_at_all_is_one_sentence(tmp_path):
    with pytest.raises(UserError, match="holds no runs"):
        find_runs(tmp_path)
    result = run_script("report.py", "--exp-root", tmp_path / "nowhere", check=False)
    assert result.returncode == 2 and "there is no experiment folder" in result.stderr


def test_librispeech_has_the_published_results_beside(root):
    for name in ("local", "global"):
        (path,) = (root / name / "beam_search").glob("results-*.json")
        path.write_text(path.read_text().replace('"part": "test"', '"part": "test-clean"'))
    found = find_runs(root)
    assert headline_set(found) == "test-clean"
    report = make_report("t", found, None, None, None)
    text = report.text()
    assert all(system.name in text for system in PAPER_SYSTEMS)
    assert all(system.beam in text for system in PUBLIC_SYSTEMS)
    assert re.search(r"paper: alpha 0.3 +global, alpha 0.3, N 10 +10 +3.16 +-49", text)
    assert re.search(r"paper, 8 V100 +10 +20 h 30 min +8.8", text)
