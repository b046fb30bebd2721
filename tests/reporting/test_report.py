"""Invariant: a report shows all that can be read and says what cannot; tables, JSON and page hold the same numbers."""

import base64
import json
import math
import re
import shutil

import pytest
import torch
from scripts import run_script

from transducer_gn.common.errors import UserError
from transducer_gn.evaluation.results import Results, write_results
from transducer_gn.recognition.error_rates import Recognised
from transducer_gn.reporting import tables
from transducer_gn.reporting.published import PAPER_SYSTEMS, PUBLIC_SYSTEMS
from transducer_gn.reporting.report import make_report, write_report
from transducer_gn.reporting.runs import choose_baseline, choose_challenger, find_runs, headline_set


@pytest.fixture
def root(runs, tmp_path):
    """A copy of the trained runs with made-up results, better for the global run."""
    for name, wrong in (("local", "NAIL"), ("global", "MAIL")):
        shutil.copytree(
            runs / name, tmp_path / name, ignore=shutil.ignore_patterns("*_search", "latency", "tensorboard")
        )
        folder = tmp_path / name / "beam_search"
        folder.mkdir()
        utterances = [
            Recognised(
                f"test-{n}",
                ["MAIL", "ORDER"],
                [wrong if n % 2 else "MAIL", "ORDER"],
                group="ambiguous",
                custom={"pair": ["MAIL", "NAIL"]},
            )
            for n in range(12)
        ] + [Recognised("x", ["A"], ["A"])]
        write_results(folder, Results("test", "epoch-1", {}, utterances))
    return tmp_path


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
    assert "epoch-3.pt cannot be read" in problems["local"] and "does not hold results" in problems["local"]
    assert "no checkpoint yet" in problems["empty"] and "no metrics.jsonl" in problems["empty"]
    assert found["global"].train and found["local"].step > 0
    report = make_report("t", list(found.values()), found["local"], found["global"], None)
    assert report.key is None
    assert "cannot read line" in report.text() and "local: not decoded yet" in report.text()
    assert "global" in tables.results_table(list(found.values()), None).text()
    assert write_report(report, root / "report").is_file()


def test_settings_of_another_version_are_said_and_older_ones_shown_until_none_are_left(root):
    def spoil(path):
        content = torch.load(path, weights_only=True)
        content["config"]["model"]["gears"] = 5
        torch.save(content, path)

    def read():
        return {run.name: run for run in find_runs(root)}["global"]

    whole = read()
    spoil(root / "global" / "epoch-4.pt")
    run = read()
    assert "epoch-4.pt is of another version of this program" in " ".join(run.problems)
    assert run.config == whole.config and 0 < run.step < whole.step
    for path in (root / "global").glob("*.pt"):
        spoil(path)
    run = read()
    assert run.config is None and "no checkpoint yet" not in " ".join(run.problems)
    assert "unknown" in tables.runs_table([run]).text()


def test_a_run_in_progress_says_how_far_it_is(root):
    (root / "global" / "epoch-4.pt").unlink()
    best = json.loads((root / "global" / "best.json").read_text())
    (root / "global" / "best.json").write_text(json.dumps(best | {"last_epoch": 3}))
    run = {run.name: run for run in find_runs(root)}["global"]
    assert not run.is_finished
    assert any("at epoch 4.00 of 4" in problem for problem in run.problems)


def test_without_a_dev_set_epochs_are_whole_and_the_last_one_is_named(root):
    for name in ("local", "global"):
        path = root / name / "best.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"wer": None}))
        metrics = root / name / "metrics.jsonl"
        rows = [line for line in metrics.read_text().splitlines() if json.loads(line)["kind"] == "train"]
        metrics.write_text("\n".join(rows[:1]) + "\n")
    found = find_runs(root)
    assert [run.train[-1]["epoch"] % 1 > 0 and run.epochs == run.best["last_epoch"] for run in found] == [True, True]
    assert "at its last epoch, for want of a dev set" in tables.results_table(found, None).text()


def test_no_runs_at_all_is_one_sentence(tmp_path):
    with pytest.raises(UserError, match="holds no runs"):
        find_runs(tmp_path)
    result = run_script("report.py", "--exp-root", tmp_path / "nowhere", check=False)
    assert result.returncode == 2 and "there is no experiment folder" in result.stderr


def test_baseline_and_challenger(root):
    found = find_runs(root)
    assert choose_baseline(found).name == "local" and choose_challenger(found).name == "global"
    assert choose_challenger(found, "local").name == "local"
    with pytest.raises(UserError, match="--baseline: there is no run 'x', only global, local"):
        choose_baseline(found, "x")


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


def test_time_per_epoch_counts_updates_since_alpha_left_one(root):
    run = {run.name: run for run in find_runs(root)}["global"]
    rows = [
        {"epoch": 1.5, "alpha": 1.0, "seconds_a": 100.0},
        {"epoch": 2.0, "alpha": 0.9, "seconds_a": 3.0, "seconds_b": 1.0},
        {"epoch": 3.0, "alpha": 0.5, "seconds_a": 8.0},
    ]
    assert type(run)(**vars(run) | {"train": rows}).seconds_per_epoch() == pytest.approx(12 / 1.5)
    assert math.isnan(type(run)(**vars(run) | {"train": []}).seconds_per_epoch())


def test_an_alpha_on_its_way_is_pointed_out(root):
    run = {run.name: run for run in find_runs(root)}["global"]
    at = {"test": Results("test", "epoch-2", {"alpha": 0.75}, run.results["test"].utterances)}
    assert tables.alpha_notes(type(run)(**vars(run) | {"results": at})) == ["global is decoded at alpha 0.75, not 0.5."]
    assert tables.alpha_notes(run) == []
