"""Invariant: memory counts every storage that an object keeps alive, once, however deep; modules do not count. What a
process in training frees it is given again.
"""

import os
import platform
import resource
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from transducer_gn.common.memory import held_bytes

REPOSITORY = Path(__file__).resolve().parents[2]


class Slotted:
    __slots__ = ("inside", "unset")

    def __init__(self) -> None:
        self.inside = torch.zeros(5)


@dataclass
class Holder:
    view: torch.Tensor
    model: torch.nn.Module
    parts: dict[str, list] = field(default_factory=dict)
    itself: object = None


def test_storages_are_counted_once_and_whole():
    whole = torch.zeros(100)
    holder = Holder(whole[:3], torch.nn.Linear(50, 50))
    assert held_bytes(holder) == 400
    holder.parts = {"a": [whole[50:], (torch.zeros(10, dtype=torch.double),)], "b": [Slotted()]}
    holder.itself = holder
    assert held_bytes(holder) == 400 + 80 + 20
    assert held_bytes("nothing") == 0


# Not by what is tested, which would else be skipped where it says no by mistake.
needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="no glibc")
PIECE = 2**26
CLEARED = """
import resource, sys, torch
from transducer_gn.common.memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
cleared = []
for _ in range(40):
    torch.ones(int(sys.argv[2]) // 4)
    cleared.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(cleared[-1] - cleared[19])
"""


def in_a_process(program: str, *arguments: str) -> str:
    """What a program says, in a process that does nothing else."""
    command = [sys.executable, "-uc", program, *arguments]
    found = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(REPOSITORY)}, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return found.stdout


def pages_cleared(how: str) -> int:
    """Pages that the system clears for twenty large tensors, one after the other, in a process that did this before."""
    return int(in_a_process(CLEARED, how, str(PIECE)))


@needs_glibc
def test_freed_memory_is_used_again() -> None:
    # By default every tensor's pages are cleared; how many these are depends on whether the system has huge ones.
    assert pages_cleared("keep") < pages_cleared("leave") / 10


INHERITED = """
import os, sys, torch
from transducer_gn.common.memory import keep_freed_memory
from transducer_gn.data.loading import leave_stopping_to_training
assert keep_freed_memory()
torch.ones(50_000_000)
if os.fork() == 0:
    pages = [int(open("/proc/self/statm").read().split()[1])]
    leave_stopping_to_training(0)
    pages.append(int(open("/proc/self/statm").read().split()[1]))
    print(pages[0] - pages[1])
    os._exit(0)
os.wait()
"""


@needs_glibc
def test_processes_that_load_batches_do_not_hold_what_training_keeps() -> None:
    found = in_a_process(INHERITED)
    assert int(found) * resource.getpagesize() > 0.9 * 4 * 50_000_000
