"""Invariant: whatever happens to a training of two ranks, to a decode or to the preparation of data, it ends with what
one makes that nothing happened to. Here every kind of fault comes once; `benchmarks/faults.py` has hundreds.
"""

import importlib.util
import sys
from collections.abc import Iterable
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


@pytest.fixture
def every_fault(faults, tmp_path) -> ModuleType:
    """The benchmark, where every fault can be done."""
    if not sys.modules["fault_disks"].can_do_all(tmp_path):
        pytest.skip("needs a user who can mount a small disk and make folders read-only")
    return faults


def assert_nothing_lost(tally, kinds: Iterable[str]) -> None:
    """Every kind came once, and the runs ended as if nothing had happened."""
    assert tally.lost == []
    assert tally.kinds == dict.fromkeys(kinds, 1)
    assert tally.files.total() == 1 and tally.runs >= 1


@pytest.mark.timeout(900)
def test_every_kind_of_fault_once(every_fault, tmp_path):
    kinds = sys.modules["fault_injection"].FAULTS
    tally = every_fault.Tally(seed=1)
    every_fault.PARTS["training"](len(kinds), tally, tmp_path, note=lambda _: None)
    assert_nothing_lost(tally, kinds)
    assert len(tally.hangs) == 1


@pytest.mark.timeout(900)
def test_a_decode_ends_with_the_same_results(every_fault, tmp_path):
    commands = sys.modules["fault_commands"]
    kinds = (commands.FAULTS.keys() | {commands.CUT_OFF}) - {commands.ONE, commands.THE_CALL}
    told = []
    tally = every_fault.Tally(seed=1)
    every_fault.PARTS["decode"](len(kinds), tally, tmp_path, note=lambda tally: told.append(tally.faults))
    assert_nothing_lost(tally, kinds)
    assert told[-1] == len(kinds) and tally.size >= 4


@pytest.mark.timeout(900)
def test_what_is_prepared_ends_byte_for_byte_the_same(every_fault, tmp_path):
    kinds = sys.modules["fault_commands"].FAULTS
    tally = every_fault.Tally(seed=1)
    every_fault.PARTS["prepare"](len(kinds), tally, tmp_path, note=lambda _: None)
    assert_nothing_lost(tally, kinds)
