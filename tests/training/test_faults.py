"""Invariant: whatever happens to a training of two ranks, to a decode or to the preparation of data, it ends with what
one makes that nothing happened to. Here every kind of fault comes once; `benchmarks/faults.py` has hundreds.
"""

import importlib.util
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from transducer_gn.common.files import folder_when_done, write_text

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


def test_what_is_written_is_told_by_kind(faults, tmp_path):
    files = sys.modules["fault_files"]
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    (tmp_path / ".partial-abcdefgh-epoch-1.pt").write_text("left behind before")

    def written() -> list[str]:
        """Names of the kinds of what was written since the last time."""
        return [kind.name for write in watch.writes(1) for kind in (*files.ALL_KINDS, files.CHAPTERS)
                if kind.includes(write)]  # fmt: skip

    with files.Watch(tmp_path) as watch:
        write_text(tmp_path / "best.json", "{}")
        assert written() == ["best.json"]
        with (tmp_path / "metrics.jsonl").open("a") as file:
            file.write("{}\n")
        assert written() == ["metrics (grown)"]
        write_text(tmp_path / "metrics.jsonl", "{}\n")
        assert written() == ["metrics (rewritten)"]
        with folder_when_done(tmp_path / "new" / "1") as partial:
            (partial / "1-1-0000.flac").write_bytes(b"fLaC")
            assert written() == ["chapters of the corpus"]
        write_text(tmp_path / "new" / "cuts_train.jsonl.gz", "")
        assert written() == ["manifests"]


def test_what_is_counted_of_a_fault_is_known_to_the_next_call(faults, tmp_path):
    files, lives, kinds = sys.modules["fault_files"], sys.modules["fault_lives"], sys.modules["fault_files"].TRAINING
    tally = faults.Tally(seed=1)
    assert tally.least_hit(kinds) == kinds
    life = lives.Life(tmp_path, None, tmp_path / "log", kinds, hit=files.BEST.name, was_left=True)
    tally.count("kill -9 while a file is written", life)
    assert files.BEST not in tally.least_hit(kinds) and tally.files_left == {files.BEST.name: 1}
    for seconds in (20.0, 130.0):
        life.seconds_hung = seconds
        tally.count("a rank hangs (SIGSTOP)", life)
    assert tally.hangs == [20.0, 130.0]
    assert tally.lost == [{"run": 0, "different": ["a hang noticed after 130 s"]}]
    values = json.loads(json.dumps(tally.to_json()))
    assert faults.Tally.from_json(values) == tally
    older = {name: value for name, value in values.items() if name not in ("files", "files_left", "hangs")}
    assert faults.Tally.from_json(older).faults == 3


def test_one_number_of_a_checkpoint_is_a_difference_and_seconds_are_none(faults, tmp_path):
    content = sys.modules["fault_content"]

    def stored(**changes: object) -> dict:
        """What is compared of a file."""
        state = {"model": {"w": torch.tensor([0.0, float("nan")])}, "average": {"count": 3}, "pending": [[]]}
        torch.save(state | changes, tmp_path / "epoch-1.pt")
        return {"epoch-1.pt": content.checkpoint_content(tmp_path / "epoch-1.pt")}

    base = stored()
    assert content.differing(base, stored(seconds_of_updates=1.5)) == []
    assert content.differing(base, stored(average={"count": 4})) == ["epoch-1.pt.average.count"]
    assert content.differing(base, stored(model={"w": torch.tensor([-0.0, float("nan")])})) == ["epoch-1.pt.model.w"]
    assert content.differing(base, stored(pending=[[1]])) == ["epoch-1.pt.pending.0", "epoch-1.pt.pending.0.0"]


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
