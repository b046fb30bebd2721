"""How the threads of a process wait for each other, and where they run.

The threads of OpenMP, which torch computes with on a CPU, meet after every operation. By default those that arrive
early spin for milliseconds. Where another process keeps a core busy, the thread that they wait for gets no turn while
they do, and training takes many times as long. Threads that soon go to sleep leave it its turn, but may be woken on the
core of the thread that wakes them, where they must wait in turn; so each is given a core of its own.
The number of threads, and with it every result, stays the same.
"""

import os
from collections.abc import Mapping
from pathlib import Path

# Rounds of spinning before a thread goes to sleep: some tenths of a millisecond, longer than most waits. By default
# there are thirty times as many.
SETTINGS = {"GOMP_SPINCOUNT": "10000", "OMP_PROC_BIND": "true"}
# If a user has set any of these, all is left as it is. A number of threads says that they are not alone.
OTHERS = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "OMP_PLACES", "GOMP_CPU_AFFINITY")

_cores = os.sched_getaffinity(0)


def load_torch_for_training() -> None:
    """Import torch, so that its threads sleep when they wait long, each on its own core.

    OpenMP reads its settings once, when torch is loaded for the first time; they are not left to other programs that
    this one may start. Nothing of this where the user has decided about threads, or where a GPU does the work.
    """
    if not decided(os.environ) and not has_gpu():
        os.environ.update(SETTINGS)
        try:
            import torch  # noqa: F401
        finally:
            for name in SETTINGS:
                del os.environ[name]


def decided(environment: Mapping[str, str]) -> bool:
    """Whether somebody has decided how many threads there are, how they wait or where they run."""
    return any(name in environment for name in (*SETTINGS, *OTHERS))


def has_gpu(devices: Path = Path("/dev")) -> bool:
    """Whether there may be a GPU, as far as can be told before torch is loaded."""
    return any(devices.glob("nvidia[0-9]*")) or (devices / "kfd").exists()


def run_on_any_core() -> None:
    """Let this process, and all that it starts, use all cores again: the first thread's core is passed on to them."""
    os.sched_setaffinity(0, _cores)
