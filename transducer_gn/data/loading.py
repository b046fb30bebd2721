"""Batches that are made in other processes, ahead of their turn."""

import signal
from collections.abc import Iterator, Sequence
from multiprocessing import parent_process
from typing import TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

from transducer_gn.common.errors import UserError
from transducer_gn.common.memory import release_freed_memory
from transducer_gn.common.processes import die_with_parent, kill_daemons_at_exit
from transducer_gn.common.threads import run_on_any_core

Item = TypeVar("Item")


def load(dataset: Dataset[Item], workers: int, numbers: Sequence[int] | None = None) -> Iterator[Item]:
    """Yield what a dataset makes; a `UserError` in a process that loads is one here.

    Args:
        dataset: makes batches
        workers: processes that load; with 0 this one does
        numbers: which to make, in this order; None for a dataset that knows itself
    """
    if workers:
        kill_daemons_at_exit()
    loader = DataLoader(
        dataset,
        batch_size=None,
        sampler=numbers,
        num_workers=workers,
        pin_memory=torch.cuda.is_available(),
        # Without a generator of its own the loader would draw from training's, once more in every resumed run.
        generator=torch.Generator(),
        worker_init_fn=leave_stopping_to_training,
    )
    try:
        yield from loader
    except UserError as error:
        # What comes from another process has its traceback before it.
        raise UserError(str(error).rpartition(f"{UserError.__name__}: ")[2].strip()) from error


def leave_stopping_to_training(_: int) -> None:
    """Called in every process that loads batches.

    A scheduler that ends a job sends its signal to all processes. Training saves what it has and then ends these;
    without them it could not. If it is killed, they go with it, and with them its lock of the folder, which they have
    inherited. Nor are they bound to the core of the thread that started them, or hold the memory that it keeps.
    """
    # By the number that was noted at its start: training may have been killed since, and its place taken.
    starter = parent_process()
    die_with_parent(None if starter is None else starter.pid)
    run_on_any_core()
    release_freed_memory()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
