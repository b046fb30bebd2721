"""Invariant: what goes wrong in a process that loads batches is said in the one that trains, which then can end."""

import subprocess
import sys

import pytest
from torch.utils.data import IterableDataset

from transducer_gn.common.errors import UserError
from transducer_gn.data.loading import load

FAILING = """
from torch.utils.data import IterableDataset
from transducer_gn.data.loading import load

class Failing(IterableDataset):
    def __iter__(self):
        yield 1
        raise OSError("the disk is gone")

list(load(Failing(), 2))
"""


class Refusing(IterableDataset):
    def __iter__(self):
        yield 1
        raise UserError("file x is bad: UserErrors of it are many; copy it again")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sentence_comes_without_the_traceback_of_another_process(workers):
    with pytest.raises(UserError, match="^file x is bad: UserErrors of it are many; copy it again$"):
        list(load(Refusing(), workers))


def test_a_program_that_fails_does_not_wait_for_ever_for_those_who_load():
    # They ignore the signal with which Python asks them to stop, and the traceback of the failure keeps them alive.
    ended = subprocess.run([sys.executable, "-c", FAILING], capture_output=True, text=True, timeout=150)
    assert ended.returncode == 1 and "the disk is gone" in ended.stderr
