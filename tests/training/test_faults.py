"""Invariant: whatever happens to a training of two ranks, it ends with the parameters, metrics and best epoch of one
that nothing happened to. Here every kind of fault comes once; `benchmarks/faults.py` has hundreds.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def faults(monkeypatch) -> ModuleType:
    """The benchmark as a module."""
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    specification = importlib.util.spec_from_file_location("faults_benchmark", BENCHMARKS / "faults.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.timeout(900)
def test_every_kind_of_fault_once(faults, tmp_path):
    injection = sys.modules["fault_injection"]
    if not injection.can_do_all(tmp_path):
        pytest.skip("needs a user who can mount a small disk and make folders read-only")
    tally = faults.Tally(seed=1)
    faults.PARTS["training"](len(injection.FAULTS), tally, tmp_path, note=lambda _: None)
    assert tally.lost == []
    assert tally.kinds == dict.fromkeys(injection.FAULTS, 1)


@pytest.mark.timeout(900)
def test_a_decode_ends_with_the_same_results(faults, tmp_path):
    kinds = ["SIGTERM", "kill -9 of all processes", "kill -9 while a file is written", "unfinished results cut off"]
    told = []
    tally = faults.Tally(seed=1)
    faults.PARTS["decode"](len(kinds), tally, tmp_path, note=lambda tally: told.append(tally.faults))
    assert tally.lost == []
    assert kinds == sorted(tally.kinds) and set(tally.kinds.values()) == {1}
    assert told[-1] == len(kinds) and tally.size >= 4
