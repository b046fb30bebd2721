"""Runs to report on."""

import shutil

import pytest

from transducer_gn.evaluation.results import Results, write_results
from transducer_gn.recognition.error_rates import Recognised


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
