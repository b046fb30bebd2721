"""One process or many: who this process is, and what all of them agree on.

Processes are started by torchrun, or by `launch`, which is torchrun's elastic agent in this process: all ranks start
again from the last checkpoint when one dies, but not when one ends for a reason that the user must see to.
"""

import logging
import os
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ErrorHandler, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.distributed.rendezvous import rendezvous

from transducer_gn.common.errors import UserError
from transducer_gn.common.processes import die_with_parent
from transducer_gn.common.threads import run_on_any_core
from transducer_gn.recognition.devices import CPU, chosen_device
from transducer_gn.training.stragglers import no_stragglers

# Exit code of a process that ends with a `UserError`, as `run_script` gives it.
USER_ERROR = 2
# Seconds that a rank leaves to the one at fault to end before it does so itself.
COURTESY = 3.0
# Tells a rank that `launch` waits for its last words, and in which process.
LAUNCHED = "TRANSDUCER_GN_LAUNCHED"


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
def join_world(wanted: str, hang_timeout: float) -> Iterator[World]:
    """The world that torchrun's environment variables describe; without them, this process alone.

    The group of small messages ends with the block, and with it its threads: one that still lets go of a tensor of
    Python's while Python shuts down aborts the process. Threads that exchange gradients hold no such tensors; torch
    keeps them for as long as the process lives.

    Args:
        wanted: the kind of device to compute on, see `chosen_device`
        hang_timeout: seconds after which a rank that waits for another gives up, so that all are restarted
    """
    size = int(os.environ.get("WORLD_SIZE", 1))
    device = chosen_device(wanted, size, int(os.environ.get("LOCAL_RANK", 0)))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if size == 1:
        yield World(device=device)
        return
    if LAUNCHED in os.environ:
        die_with_parent(int(os.environ[LAUNCHED]))
    backend, patience = "nccl" if device.type == "cuda" else "gloo", timedelta(seconds=hang_timeout)
    world = World(int(os.environ["RANK"]), size, device)
    try:
        store, rank, size = next(rendezvous("env://", timeout=patience))
        store = keys_of_this_attempt(store)
        dist.init_process_group(backend, timeout=patience, store=store, rank=rank, world_size=size)
        world.group = dist.new_group(backend="gloo", timeout=patience)
        yield world
    except RuntimeError as error:
        if not is_loss_of_a_rank(error):
            raise
        # The one that was lost says why, and must be heard first; a traceback of this one would hide it.
        logging.error("rank %d waits in vain for another rank, which has ended or hangs", world.rank)
        time.sleep(COURTESY)
        sys.exit(1)
    finally:
        world.group = None
        # A rank that waited in vain at the very beginning has none.
        if dist.is_initialized():
            dist.destroy_process_group()


def is_loss_of_a_rank(error: RuntimeError) -> bool:
    """Whether an error comes from messages between ranks."""
    return isinstance(error, dist.DistError) or "gloo" in str(error)


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


def launch(
    processes: int, device: str, script: str, arguments: list[str], hang_timeout: float, max_restarts: int = 3
) -> None:
    """Run a script in so many processes on this machine, under torchrun's elastic agent.

    Args:
        processes: how many
        device: kind of device to compute on, see `chosen_device`
        script: what Python runs, with `arguments`
        hang_timeout: seconds after which a rank that has not ended, although another has, is killed
        max_restarts: how often to start again after a rank has died; not after a `UserError` in one of them
    """
    chosen_device(device, processes)
    if device != "cpu" and torch.cuda.is_available() and processes > torch.cuda.device_count():
        raise UserError(f"--world-size is {processes}, but this machine has {torch.cuda.device_count()} GPUs")
    os.environ[LAUNCHED] = str(os.getpid())
    # What the agent has to say of a failure is said here.
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    if "OMP_NUM_THREADS" not in os.environ:
        os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // processes))
    run_on_any_core()
    for attempt in range(max_restarts + 1):
        # The agent would start again after any error. So each attempt has an agent of its own.
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=processes,
            run_id=str(uuid.uuid4()),
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            max_restarts=0,
            monitor_interval=0.2,
        )
        try:
            with no_stragglers(processes, hang_timeout):
                elastic_launch(config, sys.executable)("-u", script, *arguments)
            return
        except SignalException as error:
            # The agent has passed it on, and ranks have saved what they had.
            logging.warning("training was asked to stop; the same command goes on from the last checkpoint")
            sys.exit(128 + error.sigval)
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            if failure.exitcode == USER_ERROR:
                raise UserError(sentence_of(failure)) from error
            logging.warning("rank %d died with exit code %d", rank, failure.exitcode)
            if attempt == max_restarts:
                raise UserError(
                    f"rank {rank} failed with exit code {failure.exitcode} more than {max_restarts} times; its log "
                    "says why"
                ) from error
            logging.warning(
                "all ranks start again from the last checkpoint (%d of %d times)", attempt + 1, max_restarts
            )


def sentence_of(failure: ProcessFailure) -> str:
    """What a rank that ended with a `UserError` has recorded."""
    message: Any = failure.message
    text = message["message"] if isinstance(message, dict) else str(message)
    return text.removeprefix(f"{UserError.__name__}: ")


@contextmanager
def last_words() -> Iterator[None]:
    """In a process that `launch` has started, let the launcher say a `UserError`: once, and not once per rank."""
    try:
        yield
    except UserError as error:
        if LAUNCHED not in os.environ:
            raise
        ErrorHandler().record_exception(error)
        sys.exit(USER_ERROR)
