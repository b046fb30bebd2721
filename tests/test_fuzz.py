"""Invariant: whatever stands in a file, reading it ends in a sentence; `benchmarks/fuzz.py` has many more inputs."""

import importlib.util
import itertools
import os
import signal
import sys
from pathlib import Path

import pytest
import torch

from transducer_gn.common.errors import UserError
from transducer_gn.recognition.checkpoint import inherited_epoch_path
from transducer_gn.recognition.tensor_files import read_tensors

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def benchmarks_are_found(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])


def fuzz_benchmark():
    specification = importlib.util.spec_from_file_location("fuzz_benchmark", BENCHMARKS / "fuzz.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_changed_files_end_in_a_sentence():
    """All readers, each of which begins with its good inputs; in this order, so that each starts from fewer imports."""
    benchmark = fuzz_benchmark()
    assert len(benchmark.TARGETS) > 30
    for reader in benchmark.TARGETS:
        *_, found = benchmark.fuzz_reader(reader, inputs=80, seed=7)
        assert (found.inputs, found.failures) == (80, {}), reader


def test_a_reader_whose_good_inputs_are_all_refused_is_named(monkeypatch):
    """It would look as if it had been tried."""
    benchmark = fuzz_benchmark()
    target = importlib.import_module("fuzzing").Target

    def read(content: bytes) -> None:
        if content != b"good":
            raise UserError("this is no good input")

    monkeypatch.setitem(benchmark.TARGETS, "x", lambda folder: target(read, [b"bad", b"worse"]))
    with pytest.raises(UserError, match=r"^x: none of the good inputs .* is read \(this is no good input\); mend"):
        list(benchmark.fuzz_reader("x", inputs=10, seed=7))
    monkeypatch.setitem(benchmark.TARGETS, "x", lambda folder: target(read, [b"bad", b"good"]))
    *_, found = benchmark.fuzz_reader("x", inputs=2, seed=7)
    assert (found.read, found.sentences, found.failures) == (1, 1, {})


def test_a_reader_that_breaks_on_its_good_input_is_named(monkeypatch):
    benchmark = fuzz_benchmark()

    def read(content: bytes) -> None:
        raise KeyError("weights")

    target = importlib.import_module("fuzzing").Target
    monkeypatch.setitem(benchmark.TARGETS, "x", lambda folder: target(read, [b"good"]))
    with pytest.raises(UserError, match=r"^x: none of the good inputs .*weights.*; mend them$"):
        list(benchmark.fuzz_reader("x", inputs=10, seed=7))


def test_readers_have_one_thread():
    """A copy of a process that has used more of them waits for those that it has not, for ever."""
    torch.set_num_threads(2)
    *_, found = fuzz_benchmark().fuzz_reader("parts", inputs=5, seed=7)
    assert (found.inputs, torch.get_num_threads()) == (5, 1)


def test_what_a_process_found_before_it_died_or_was_stopped_is_known():
    fuzzing = importlib.import_module("fuzzing")
    inputs = itertools.count(1)

    def read(content: bytes) -> None:
        if next(inputs) == 2500:
            os.kill(os.getpid(), signal.SIGKILL)

    told = fuzzing.fuzz(fuzzing.Target(read, [b"good"]), 10_000, 7, fuzzing.Findings())
    found = [next(told) for _ in range(4)]
    told.close()
    assert [(part.inputs, part.read) for part in found] == [(1000, 1000), (2000, 2000), (2500, 2000), (3500, 3000)]
    assert [list(part.failures) for part in found[1:3]] == [[], ["the process died of signal 9"]]


def test_one_number_cannot_stand_for_a_huge_tensor(tmp_path):
    torch.save({"a": torch.zeros(1).expand(10**15)}, tmp_path / "a.pt")
    with pytest.raises(ValueError, match="larger than the file"):
        read_tensors(tmp_path / "a.pt")


def test_a_run_that_stands_on_itself(tmp_path):
    (tmp_path / "branch.json").write_text('{"from": "epoch-1.pt"}')
    with pytest.raises(UserError, match="cannot be read"):
        inherited_epoch_path(tmp_path, 1)
