"""One process or many: who this process is, and what all of them agree on.

Processes are started by torchrun, or by `launch`, which is torchrun's elastic agent in this process: it restarts all
ranks from the last checkpoint when one dies.
"""

import os
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.distributed.rendezvous import rendezvous

from transducer_gn.common.errors import UserError
from transducer_gn.common.threads import run_on_any_core

CPU = torch.device("cpu")


@dataclass
class World:
    """This process among `size` that train together.

    Attributes:
        rank: number of this process, from 0
        size: number of processes
        device: where this process computes
        group: for small messages between hosts' memories, whatever the gradients travel on; None for a process alone,
            and once it has left
    """

    rank: int = 0
    size: int = 1
    device: torch.device = CPU
    group: dist.ProcessGroup | None = None

    @property
    def is_first(self) -> bool:
        """Whether this is the one that writes."""
        return self.rank == 0

    def sum(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Scalars added up over all ranks; every rank must call it with the same names."""
        stacked = torch.stack([value.detach().double().cpu() for value in values.values()])
        if self.size > 1:
            dist.all_reduce(stacked, group=self.group)
        return dict(zip(values, stacked.unbind(), strict=True))

    def smallest(self, number: int) -> int:
        """The least of the ranks' numbers."""
        if self.size == 1:
            return number
        value = torch.tensor(number)
        dist.all_reduce(value, op=dist.ReduceOp.MIN, group=self.group)
        return int(value)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank."""
        return self.smallest(-int(flag)) < 0

    def gather(self, value: Any) -> list[Any] | None:
        """The ranks' values in order, on the first rank; None on the others."""
        if self.size == 1:
            return [value]
        values: list[Any] | None = [None] * self.size if self.is_first else None
        dist.gather_object(value, values, dst=0, group=self.group)
        return values

    def wait(self) -> None:
        """Until all ranks have come here."""
        if self.size > 1:
            dist.barrier(group=self.group)


@contextmanager
def join_world() -> Iterator[World]:
    """The world that torchrun's environment variables describe; without them, this process alone.

    The group of small messages ends with the block, and with it its threads: one that still lets go of a tensor of
    Python's while Python shuts down aborts the process. Threads that exchange gradients hold no such tensors; torch
    keeps them for as long as the process lives.
    """
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else CPU
    if device.type == "cuda":
        torch.cuda.set_device(device)
    size = int(os.environ.get("WORLD_SIZE", 1))
    if size == 1:
        yield World(device=device)
        return
    store, rank, size = next(rendezvous("env://"))
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo", store=keys_of_this_attempt(store), rank=rank, world_size=size
    )
    world = World(rank, size, device)
    try:
        world.group = dist.new_group(backend="gloo")
        yield world
    finally:
        world.group = None
        dist.destroy_process_group()


def keys_of_this_attempt(store: Store) -> Store:
    """A view of the store in which ranks find only what ranks of the same attempt have put there.

    torchrun's agent keeps one store over all restarts, with the addresses of ranks that are dead by now: a rank that
    reads one before its new owner has written it waits for a connection that never comes. Agents of several machines
    count their attempts differently, so this can be done on one machine only; with several, users switch the shared
    store off (README).
    """
    if os.environ.get("GROUP_WORLD_SIZE", "1") != "1":
        return store
    return PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def launch(processes: int, script: str, arguments: list[str], max_restarts: int = 3) -> None:
    """Run a script in so many processes on this machine, under torchrun's elastic agent."""
    if torch.cuda.is_available() and processes > torch.cuda.device_count():
        raise UserError(f"--world-size is {processes}, but this machine has {torch.cuda.device_count()} GPUs")
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=str(uuid.uuid4()),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=max_restarts,
        monitor_interval=0.2,
    )
    if "OMP_NUM_THREADS" not in os.environ:
        os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // processes))
    run_on_any_core()
    try:
        elastic_launch(config, sys.executable)("-u", script, *arguments)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        raise UserError(
            f"rank {rank} failed with exit code {failure.exitcode} more than {max_restarts} times; its log says why"
        ) from error
