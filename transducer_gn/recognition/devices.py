"""Where to compute: a GPU that is there but cannot be used ends in a sentence, and nobody falls back in silence."""

import os
import re
import subprocess
from pathlib import Path

import torch

from transducer_gn.common.errors import UserError

CPU = torch.device("cpu")

HIDE = 'hide it with CUDA_VISIBLE_DEVICES="" to compute on processors'
# GPUs older than this (7.5, Turing) are only in builds for CUDA 12.6.
OLDEST_OF_CUDA_13 = (7, 5)


def chosen_device(wanted: str = "auto", processes: int = 1, number: int = 0) -> torch.device:
    """The device of one of `processes` on this machine; UserError that says what to do if there is none such.

    Args:
        wanted: "cpu", "cuda", or "auto" for a GPU if the machine has one, else the CPU, but only for a process alone
        processes: how many compute together
        number: of this process on this machine, which is that of its GPU
    """
    if wanted == "cpu":
        return CPU
    if torch.cuda.is_available():
        if number >= torch.cuda.device_count():
            raise UserError(
                f"process {number} of this machine has no GPU of its own, there are {torch.cuda.device_count()}; "
                "start fewer processes"
            )
        check_kernels(number)
        return torch.device("cuda", number)
    if gpus := gpus_of_machine():
        raise UserError(f"this machine has {gpus}, but {unusable_build()}, or {HIDE}")
    if wanted == "cuda":
        raise UserError("--device cuda: this machine has no GPU; say --device cpu")
    if processes > 1:
        raise UserError(
            f"{processes} processes were asked for, one per GPU, but this machine has no GPU; say --device cpu to "
            "compute on its processors"
        )
    return CPU


def check_kernels(number: int) -> None:
    """UserError if torch's build has no kernels for a GPU."""
    name, capability = torch.cuda.get_device_name(number), torch.cuda.get_device_capability(number)
    architectures = torch.cuda.get_arch_list()
    what = f"GPU {number} is a {name} (sm_{capability[0]}{capability[1]})"
    if torch.version.hip is None and not has_kernels(capability, architectures):
        those = ", ".join(architectures)
        raise UserError(f"{what}, but torch {torch.__version__} has kernels only for {those}; {remedy(capability)}")
    try:
        torch.ones(2, device=f"cuda:{number}").sum().item()
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"{what}, but torch {torch.__version__} cannot compute there ({reason}); {remedy(capability)}"
        ) from error


def has_kernels(capability: tuple[int, int], architectures: list[str]) -> bool:
    """Whether code for one of the architectures runs on a GPU of this capability.

    Machine code (sm_80) runs on later GPUs of the same generation, intermediate code (compute_80) on all later ones.
    """
    for architecture in architectures:
        if found := re.fullmatch(r"(sm|compute)_(\d+)(\d)[af]?", architecture):
            own = int(found[2]), int(found[3])
            if own <= capability and (found[1] == "compute" or own[0] == capability[0]):
                return True
    return False


def remedy(capability: tuple[int, int]) -> str:
    """Which build of torch to use instead, as README.md's table has it."""
    build = "cu126" if capability < OLDEST_OF_CUDA_13 else "cu130"
    return f"set up again with TRANSDUCER_GN_TORCH={build}, or {HIDE}"


def unusable_build() -> str:
    """Why torch sees no GPU where there is one, and what to do about it."""
    version = f"torch {torch.__version__}"
    if torch.version.cuda is None and torch.version.hip is None:
        return f"{version} is a build for processors alone; set up again with TRANSDUCER_GN_TORCH=cu126 or cu130"
    return (
        f"{version}, built for CUDA {torch.version.cuda}, cannot use it: CUDA 13 needs driver 580 or later, CUDA 12 "
        "driver 525; update the driver, or set up again with TRANSDUCER_GN_TORCH=cu126"
    )


def gpus_of_machine() -> str:
    """The GPUs that the machine has, whether torch can use them or not; empty if there are none, or none to be used.

    A user who sets CUDA_VISIBLE_DEVICES to nothing has asked for none.
    """
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all") in ("", "-1"):
        return ""
    try:
        command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        asked = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        asked = ""
    found = [line.strip().replace(", ", " with driver ", 1) for line in asked.splitlines() if line.strip()]
    found = found or [path.name for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*"))]
    return f"{len(found)} GPU{'s' if len(found) > 1 else ''} ({found[0]})" if found else ""
