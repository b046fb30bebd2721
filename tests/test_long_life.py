"""Invariant: a process that trains, or recognises streams, opens and starts no more as it goes on;
`benchmarks/long_life.py` looks for longer, and at memory, too.
"""

import importlib.util
import signal
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def long_life() -> ModuleType:
    """The benchmark's file as a module."""
    sys.path.insert(0, str(FOLDER))
    try:
        specification = importlib.util.spec_from_file_location("long_life_benchmark", FOLDER / "long_life.py")
        module = importlib.util.module_from_spec(specification)
        sys.modules[specification.name] = module
        specification.loader.exec_module(module)
    finally:
        sys.path.remove(str(FOLDER))
    return module


def test_growth_is_that_of_the_last_quarter_over_the_second(long_life):
    memory = [1, 9, 10, 12, 11, 10, 30, 18]
    looks = [long_life.Look(n, size, 5 + n // 6, 2, 1 + n // 4, 9) for n, size in enumerate(memory)]
    assert long_life.growth(looks) == {"memory": 2.5, "files": 1, "threads": 0, "processes": 1, "held": 0}


def test_training_opens_and_starts_no_more_over_epochs(long_life, tmp_path, monkeypatch):
    monkeypatch.setattr(long_life, "UTTERANCES", 12)
    listener = signal.getsignal(signal.SIGTERM)
    looks = long_life.train(24, tmp_path)
    # Otherwise nothing would end the benchmark's next part.
    assert signal.getsignal(signal.SIGTERM) is listener
    assert [one.done for one in looks] == list(range(25))
    grown = long_life.growth(looks)
    assert (grown["files"], grown["threads"], grown["processes"]) == (0, 0, 0)
    assert looks[-1].processes >= 1


def test_streams_that_come_and_go_leave_nothing_behind(long_life, tmp_path):
    looks = long_life.stream(0.5, tmp_path)
    assert looks[-1].done == 30
    grown = long_life.growth(looks)
    assert (grown["files"], grown["threads"], grown["processes"]) == (0, 0, 0)
    # A stream that was left behind would hold its caches.
    assert looks[-1].held > 0 and grown["held"] < looks[1].held / 10
