"""Invariant: of a run all is read that can be read, and what cannot is said."""

import json
import math
from dataclasses import replace

import pytest
import torch

from transducer_gn.common.errors import UserError
from transducer_gn.config import MwerConfig
from transducer_gn.reporting import tables
from transducer_gn.reporting.report import training_figures
from transducer_gn.reporting.runs import choose_baseline, choose_challenger, find_runs, normalisation_text


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


def test_baseline_and_challenger(root):
    found = find_runs(root)
    assert choose_baseline(found).name == "local" and choose_challenger(found).name == "global"
    assert choose_challenger(found, "local").name == "local"
    with pytest.raises(UserError, match="--baseline: there is no run 'x', only global, local"):
        choose_baseline(found, "x")


def test_time_per_epoch_counts_updates_since_alpha_left_one(root):
    run = {run.name: run for run in find_runs(root)}["global"]
    rows = [
        {"epoch": 1.5, "alpha": 1.0, "seconds_a": 100.0},
        {"epoch": 2.0, "alpha": 0.9, "seconds_a": 3.0, "seconds_b": 1.0},
        {"epoch": 3.0, "alpha": 0.5, "seconds_a": 8.0},
    ]
    assert type(run)(**vars(run) | {"train": rows}).seconds_per_epoch() == pytest.approx(12 / 1.5)
    assert math.isnan(type(run)(**vars(run) | {"train": []}).seconds_per_epoch())


def test_expected_errors_are_named_and_are_no_plain_baseline(root):
    local, other = ({run.name: run for run in find_runs(root)}[name] for name in ("local", "global"))
    mwer = replace(local.config, mwer=MwerConfig(weight=0.9, scores="local"))
    trained = replace(local, name="local-mwer", config=mwer, step=local.step + 1)
    assert normalisation_text(trained) == "local, alpha 1, N 3, MWER 0.9, local scores"
    assert (local.competitors, trained.competitors) == (None, 3)
    assert choose_baseline([local, trained]) is local
    drawn = {figure.name: figure for figure in training_figures([local, other, trained], local, other)}
    assert len(drawn["wer-by-objective"].panels()[0]["lines"]) == 3
    assert len(drawn["wer-by-alpha"].panels()[0]["lines"]) == 2
    assert "wer-by-objective" not in [figure.name for figure in training_figures([local, other], local, other)]
