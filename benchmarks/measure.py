"""Measuring for benchmarks: medians of repeated runs, peak memory of a process, a process for each variant."""

import contextlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from transducer_gn.common.files import write_text


def median_seconds(run: Callable[[], object], repeats: int, warm_up: int = 1) -> float:
    """Median wall-clock seconds of a call."""
    for _ in range(warm_up):
        run()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def peak_bytes(run: Callable[[], object]) -> int:
    """How far a call raises this process's resident memory above what it holds before."""
    before = _status_bytes("VmRSS")
    # Forget the peak so far. Where that fails, it is that of the whole process, which is at least as high.
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    run()
    return max(_status_bytes("VmHWM"), before) - before


def _status_bytes(field: str) -> int:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def sgemm_rate(rows: int, inner: int, columns: int) -> float:
    """Floating-point operations per second of this machine's own matrix product of that shape."""
    left, right = torch.randn(rows, inner), torch.randn(inner, columns)
    result = torch.empty(rows, columns)
    return 2 * rows * inner * columns / median_seconds(lambda: torch.mm(left, right, out=result), repeats=20)


def in_own_process(script: str, arguments: list[str], threads: int) -> dict:
    """Run a script again with arguments that make it measure one variant, and read the JSON it prints last."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    # Leave large tensors to the heap instead of mapping each one anew: page faults would drown small differences.
    environment |= {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 34)}
    result = subprocess.run(
        [sys.executable, script, *arguments], env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(result.stdout.splitlines()[-1])


def write_result(path: str | None, result: dict) -> None:
    """Write a benchmark's JSON, with what it was measured on, where asked for."""
    if path is not None:
        machine = {"torch": torch.__version__, "processor": platform.processor() or platform.machine()}
        write_text(path, json.dumps(result | {"machine": machine}, indent=1) + "\n")
