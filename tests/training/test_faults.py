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
    if not sys.modules["fault_injection"].can_do_all(tmp_path):
        pytest.skip("needs a user who can mount a small disk and make folders read-only")
    tally = faults.Tally(seed=1)
    faults.disturbed_runs(len(faults.FAULTS), tally, tmp_path, note=lambda _: None)
    assert tally.lost == []
    assert tally.counts == dict.fromkeys(faults.FAULTS, 1)
