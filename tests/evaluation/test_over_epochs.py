"""Invariant: every epoch of a run is decoded and measured once, with its own parameters, and apart from what a report
of the best epoch is made of.
"""

import shutil

import pytest

from transducer_gn.commands import over_epochs
from transducer_gn.common.errors import UserError
from transducer_gn.config import SystemConfig
from transducer_gn.evaluation.over_epochs import find_epochs, trained_epochs
from transducer_gn.recognition.system import load_system
from transducer_gn.reporting.runs import read_run


@pytest.fixture(scope="module")
def measured(runs, tmp_path_factory):
    """A copy of the local run, whose epochs were measured."""
    folder = tmp_path_factory.mktemp("epochs") / "local"
    shutil.copytree(runs / "local", folder, ignore=shutil.ignore_patterns("*_search", "latency", "tensorboard"))
    over_epochs.main(["--exp-dir", str(folder), "--sets", "[test]", "--beam", "2", "--utterances", "4"])
    return folder


def test_every_epoch_has_results_of_its_own_parameters(measured):
    found = find_epochs(measured, "test")
    assert trained_epochs(measured) == [epoch.epoch for epoch in found] == [1, 2, 3]
    for epoch in found:
        parameters = load_system(measured, SystemConfig(epoch=epoch.epoch)).fingerprint
        assert epoch.results.identity["parameters"] == epoch.latency.identity["parameters"] == parameters
        assert len(epoch.results.utterances) == 8 and len(epoch.latency.utterances) == 4
    assert find_epochs(measured, "dev") == []


def test_results_of_the_run_itself_are_untouched(measured):
    run = read_run(measured)
    assert run.results == {} and run.latencies == {}


def test_a_second_call_does_nothing(measured):
    def times():
        return {path: path.stat().st_mtime_ns for path in (measured / "epochs").rglob("*") if path.is_file()}

    before = times()
    over_epochs.main(["--exp-dir", str(measured), "--sets", "[test]", "--beam", "2", "--utterances", "4"])
    assert before and times() == before


def test_a_run_without_epochs_is_named(tmp_path):
    with pytest.raises(UserError, match="has no epoch-N.pt"):
        over_epochs.main(["--exp-dir", str(tmp_path)])
