"""Invariant: a GPU that is there but cannot be used ends in a sentence that names it, torch's build and the remedy;
several processes compute on CPUs only when asked to.
"""

import subprocess

import pytest
import torch

from transducer_gn.common.errors import UserError
from transducer_gn.recognition import devices
from transducer_gn.recognition.devices import chosen_device, gpus_of_machine, has_kernels, remedy

CUDA_13 = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"]
CUDA_12 = ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"]


@pytest.fixture
def machine(monkeypatch):
    """A function that makes torch and the machine say other things about GPUs."""

    def make(name=None, capability=(7, 0), available=True, build="13.0", architectures=CUDA_13, count=8):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setattr(torch, "__version__", "2.13.0+test")
        monkeypatch.setattr(torch.version, "cuda", build)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: name is not None and available)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: name)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda number: capability)
        monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: architectures)
        output = f"{name}, 535.54.03\n" * count if name else ""

        def nvidia_smi(command, **_):
            if not name:
                raise FileNotFoundError(command[0])
            return subprocess.CompletedProcess(command, 0, output, "")

        monkeypatch.setattr(devices.subprocess, "run", nvidia_smi)

    return make


def test_a_machine_without_gpu_computes_on_the_cpu_alone_or_when_asked(machine):
    machine()
    assert chosen_device().type == "cpu" and chosen_device("cpu", 8, 7).type == "cpu"
    with pytest.raises(UserError, match="8 processes .* no GPU; say --device cpu"):
        chosen_device("auto", 8)
    with pytest.raises(UserError, match="--device cuda: this machine has no GPU"):
        chosen_device("cuda")


def test_a_v100_with_the_build_for_cuda_13(machine):
    machine("Tesla V100-SXM2-32GB")
    sentence = r"Tesla V100-SXM2-32GB \(sm_70\), but torch 2.13.0\+test has kernels only for sm_75, .*cu126"
    with pytest.raises(UserError, match=sentence):
        chosen_device()
    assert chosen_device("cpu").type == "cpu"


def test_a_v100_with_the_build_for_cuda_12_that_fails_all_the_same(machine, monkeypatch):
    machine("Tesla V100-SXM2-32GB", architectures=CUDA_12)

    def failing(*_, **__):
        raise RuntimeError("CUDA error: no kernel image is available\nand so on")

    monkeypatch.setattr(torch, "ones", failing)
    with pytest.raises(UserError, match=r"cannot compute there \(CUDA error: no kernel image is available\).*cu126"):
        chosen_device()


def test_a_gpu_whose_driver_is_too_old(machine):
    machine("NVIDIA A100", available=False)
    with pytest.raises(
        UserError, match=r"8 GPUs \(NVIDIA A100 with driver 535.54.03\).*CUDA 13.0.*580.*cu126.*CUDA_VISIBLE_DEVICES"
    ):
        chosen_device()


def test_a_gpu_and_a_build_for_processors(machine):
    machine("NVIDIA A100", available=False, build=None, count=1)
    with pytest.raises(UserError, match=r"1 GPU \(NVIDIA A100.*2.13.0\+test is a build for processors alone.*cu130"):
        chosen_device()


def test_hidden_gpus_are_none(machine, monkeypatch):
    machine("NVIDIA A100", available=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpus_of_machine() == "" and chosen_device().type == "cpu"


def test_more_processes_than_gpus(machine):
    machine("NVIDIA A100", capability=(8, 0), count=2)
    with pytest.raises(UserError, match="there are 2; start fewer"):
        chosen_device("auto", 3, 2)


@pytest.mark.parametrize("capability", [(7, 0), (7, 2), (7, 4), (7, 5), (8, 6), (12, 0)])
def test_the_build_that_is_recommended_has_kernels(capability):
    build = "cu130" if has_kernels(capability, CUDA_13) else "cu126"
    assert f"TRANSDUCER_GN_TORCH={build}" in remedy(capability)


@pytest.mark.parametrize(
    ("capability", "architectures", "expected"),
    [
        ((7, 0), CUDA_13, False),
        ((7, 0), CUDA_12, True),
        ((8, 9), CUDA_13, True),  # later of the same generation
        ((10, 0), CUDA_12, False),
        ((13, 0), CUDA_13, True),  # by intermediate code
        ((12, 1), ["sm_120a"], True),
    ],
)
def test_which_gpus_have_kernels(capability, architectures, expected):
    assert has_kernels(capability, architectures) == expected
