"""Invariant: whatever stands in a file, reading it ends in a sentence; `benchmarks/fuzz.py` has many more inputs."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

from transducer_gn.common.errors import UserError
from transducer_gn.recognition.checkpoint import inherited_epoch_path
from transducer_gn.recognition.tensor_files import read_tensors

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
READERS = ("best", "branch", "parts", "metrics", "manifest-bytes", "arrays", "requests", "metadata", "exported-system")
READERS += ("messages", "experiments")


@pytest.mark.parametrize("reader", READERS)
def test_changed_files_end_in_a_sentence(reader, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    specification = importlib.util.spec_from_file_location("fuzz_benchmark", BENCHMARKS / "fuzz.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    *_, found = module.fuzz_reader(reader, inputs=300, seed=7)
    assert found.inputs == 300
    assert found.failures == {}


def test_one_number_cannot_stand_for_a_huge_tensor(tmp_path):
    torch.save({"a": torch.zeros(1).expand(10**15)}, tmp_path / "a.pt")
    with pytest.raises(ValueError, match="larger than the file"):
        read_tensors(tmp_path / "a.pt")


def test_a_run_that_stands_on_itself(tmp_path):
    (tmp_path / "branch.json").write_text('{"from": "epoch-1.pt"}')
    with pytest.raises(UserError, match="cannot be read"):
        inherited_epoch_path(tmp_path, 1)
