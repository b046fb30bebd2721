"""Invariant: gradients of ranks that share utterances equal those of one process that has them all; a rank that has
left its world has no thread of it.
"""

import os
import socket
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from toy_data import toy_settings

from transducer_gn.config import config_parser, read_config
from transducer_gn.data.batches import Batch
from transducer_gn.model.chunk import Chunk
from transducer_gn.training import distributed
from transducer_gn.training.clock import Clock
from transducer_gn.training.distributed import World, join_world
from transducer_gn.training.schedule import SchedulePoint
from transducer_gn.training.start import start_run
from transducer_gn.training.training_pass import Plan

POINT = SchedulePoint(alpha=0.3, regulariser=0.1)
SETTINGS = {"objective.regulariser_points": "all"}


def some_utterances(state):
    return next(iter(state.batches))


def part_of(batch, first, last):
    fields = {name: getattr(batch, name)[first:last] for name in Batch.__dataclass_fields__}
    return Batch(**fields)


def gradients(state, batch):
    # Without dropout and balancers: the latter nudge gradients by statistics of the batch that they see, so that they
    # depend on how utterances are divided by design.
    learner = state.learner
    learner.training_pass.eval()
    learner.backward(Plan(batch, Chunk(2, 4), None, seed=0), POINT, 1.0, Clock(torch.device("cpu")))
    return {name: parameter.grad.clone() for name, parameter in learner.model.named_parameters()}


def make_state(flags, folder, world):
    config, _ = read_config(config_parser("test"), flags)
    return start_run(config, folder, world, branch_from=None, allow_changed=False)


def environment(rank, port):
    return {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "localhost", "MASTER_PORT": port}


def set_environment(variables):
    os.environ.update({name: str(value) for name, value in variables.items()})


def check_rank(world, flags, folder, expected, share):
    """What a rank computes with its share of a batch, and what ranks tell each other."""
    batch = some_utterances(make_state(flags, folder, World()))
    for name, value in gradients(make_state(flags, folder, world), part_of(batch, *share)).items():
        scale = expected[name].abs().max()
        torch.testing.assert_close(value, expected[name], rtol=1e-3, atol=float(1e-4 * scale) + 1e-6, msg=name)
    # A flag or a number that one rank has, all know; sums are over all.
    assert world.any(world.rank == 1) and not world.any(False)
    assert world.smallest(3 + world.rank) == 3
    assert world.sum({"x": torch.tensor(1.0 + world.rank)})["x"] == 3
    assert world.gather(world.rank) == ([0, 1] if world.rank == 0 else None)


def threads_of_groups():
    """How many of this process's threads work for process groups."""
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    return sum("gloo_runloop" in name for name in names)


def run_rank(rank, flags, folder, port, expected, shares):
    torch.set_num_threads(1)
    set_environment(environment(rank, port))
    with join_world("cpu", 60) as world:
        check_rank(world, flags, folder, expected, shares[rank])
        inside = threads_of_groups()
    # Of two groups, that of small messages is gone: a thread of it that let go of one while Python shuts down would
    # abort the process.
    assert threads_of_groups() <= inside // 2 and inside > 0


@pytest.mark.parametrize("shares", [((0, 2), (2, None)), ((0, 1), (1, None))], ids=["even", "uneven"])
def test_two_ranks_have_the_gradient_of_one_process(shares, toy, tmp_path):
    flags = toy_settings(toy, **SETTINGS)
    state = make_state(flags, tmp_path, World())
    batch = some_utterances(state)
    assert len(batch) >= 4
    expected = gradients(state, batch)
    assert all(grad.abs().max() > 0 for grad in expected.values())
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    multiprocessing.spawn(run_rank, (flags, tmp_path, port, expected, shares), nprocs=2)


def test_all_ranks_wait_for_each_other(monkeypatch):
    waits = []
    monkeypatch.setattr(dist, "barrier", lambda group: waits.append(group))
    for size in (1, 2, 3):
        World(0, size, group=f"{size} ranks").wait()
    assert waits == ["2 ranks", "3 ranks"]


def test_a_rank_dies_with_its_launcher_from_the_first(monkeypatch):
    """Before it waits for the others, which may take long."""
    done = []
    monkeypatch.setattr(distributed, "die_with_parent", lambda parent: done.append(parent))

    def nobody(*_, **__):
        raise TimeoutError("the others did not come")

    monkeypatch.setattr(distributed, "rendezvous", nobody)
    for name, value in (environment(0, 1) | {distributed.LAUNCHED: 1234}).items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(TimeoutError), join_world("cpu", 60):
        pass
    assert done == [1234]


def test_a_rank_whose_peer_never_comes_says_so(monkeypatch, caplog):
    monkeypatch.setattr(distributed, "COURTESY", 0)
    # A store that is there before the first of two ranks, as under torchrun's agent.
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    agent = {"TORCHELASTIC_USE_AGENT_STORE": True, "GROUP_WORLD_SIZE": 1}
    for name, value in (environment(0, store.port) | agent).items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(SystemExit) as ended, join_world("cpu", 1):
        pass
    assert ended.value.code == 1 and "rank 0 waits in vain for another rank" in caplog.text
    assert not dist.is_initialized()


@pytest.mark.parametrize(("processes", "threads"), [(1, "8"), (3, "2"), (8, "1"), (20, "1")])
def test_ranks_share_the_cores(processes, threads, monkeypatch):
    # Set before they are taken away, so that both are afterwards as they were.
    for name in ("OMP_NUM_THREADS", distributed.LAUNCHED):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    seen = []
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(distributed, "run_on_any_core", lambda: None)
    monkeypatch.setattr(
        distributed,
        "elastic_launch",
        lambda config, program: lambda *_: seen.append((config.nproc_per_node, os.environ["OMP_NUM_THREADS"])),
    )
    distributed.launch(processes, "cpu", "train.py", [], hang_timeout=60)
    assert seen == [(processes, threads)]


def join_and_die(rank, attempt, port, delay):
    """A rank under torchrun's agent that ends without a word to anybody."""
    time.sleep(delay)
    agent = {"TORCHELASTIC_USE_AGENT_STORE": True, "TORCHELASTIC_RESTART_COUNT": attempt, "GROUP_WORLD_SIZE": 1}
    set_environment(environment(rank, port) | agent)
    with join_world("cpu", 60) as world:
        assert world.sum({"x": torch.tensor(1.0)})["x"] == 2
        os._exit(0)


def test_a_restarted_rank_does_not_look_for_a_dead_one():
    # The agent's store outlives the ranks. The first rank of the second attempt joins while only the addresses of the
    # first attempt can be there.
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    context = multiprocessing.get_context("spawn")
    for attempt in (0, 1):
        ranks = [context.Process(target=join_and_die, args=(rank, attempt, store.port, 3 * rank)) for rank in (0, 1)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join(60)
        codes = [rank.exitcode for rank in ranks]
        for rank in ranks:
            rank.kill()
        assert codes == [0, 0], attempt
