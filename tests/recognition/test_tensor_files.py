"""Invariant: a file of tensors holds ordinary tensors that fit into it, plain values, and nothing else."""

import pytest
import torch

from transducer_gn.recognition.tensor_files import check_plain, read_tensors, write_tensors

OTHER_KINDS = {
    "sparse": torch.eye(3).to_sparse(),
    "elsewhere": torch.ones(3, device="meta"),
    "quantised": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
}


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_tensors_of_other_kinds_are_refused_wherever_they_are(kind):
    check_plain({"a": [1, (torch.ones(3), "b")]}, 1000)
    with pytest.raises(ValueError, match="it holds a tensor of another kind"):
        check_plain({"a": [1, (OTHER_KINDS[kind], "b")]}, 1000)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.int64])
def test_a_tensor_may_be_as_large_as_its_file_and_no_larger(dtype):
    """One that repeats its numbers in memory takes no room in a file, and any in a program."""
    tensor = torch.zeros(1, dtype=dtype).expand(10)
    check_plain(tensor, 10 * tensor.element_size())
    with pytest.raises(ValueError, match="larger than the file"):
        check_plain(tensor, 10 * tensor.element_size() - 1)


def test_a_file_with_a_tensor_that_is_larger_is_refused(tmp_path):
    write_tensors({"a": torch.zeros(1).expand(100)}, tmp_path / "small.pt")
    assert read_tensors(tmp_path / "small.pt")["a"].shape == (100,)
    write_tensors({"a": torch.zeros(1).expand(10**6)}, tmp_path / "large.pt")
    with pytest.raises(ValueError, match="larger than the file"):
        read_tensors(tmp_path / "large.pt")
