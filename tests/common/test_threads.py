"""Invariant: where nobody has decided about threads, those of training are bound, each to a core, and all results are
the same; other processes that training starts may use all cores.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from transducer_gn.common import threads

COMMAND = """
import os
before = os.sched_getaffinity(0)
import transducer_gn.commands.train, torch, hashlib
from transducer_gn.common.threads import SETTINGS, run_on_any_core
torch.manual_seed(0)
left, right = torch.randn(2, 700, 700)
total = (left @ right).tanh().sum() + left.exp().sum()
bound = len(os.sched_getaffinity(0)) < len(before)
run_on_any_core()
free = os.sched_getaffinity(0) == before
print(bound, free, any(name in os.environ for name in SETTINGS), torch.get_num_threads(), float(total).hex())
"""


def answers(**environment: str) -> list[str]:
    """What a fresh process that imports the command for training says of itself."""
    kept = {name: value for name, value in os.environ.items() if not threads.decided({name: value})}
    kept |= environment | {"PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(
        [sys.executable, "-c", COMMAND], env=kept, check=True, capture_output=True, text=True
    ).stdout.split()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2 or threads.has_gpu(), reason="there is nothing to bind")
def test_threads_are_bound_unless_the_user_has_decided_and_results_are_the_same():
    bound, free, left, count, total = answers()
    assert (bound, free, left) == ("True", "True", "False")
    assert answers(GOMP_SPINCOUNT="300000") == ["False", "True", "True", count, total]


def test_a_number_of_threads_is_a_decision():
    assert answers(OMP_NUM_THREADS="1")[:4] == ["False", "True", "False", "1"]


@pytest.mark.parametrize("name", ["nvidia0", "nvidia11", "kfd"])
def test_gpus_are_found_by_their_files(name, tmp_path):
    (tmp_path / "nvidiactl").touch()
    assert not threads.has_gpu(tmp_path)
    (tmp_path / name).touch()
    assert threads.has_gpu(tmp_path)
