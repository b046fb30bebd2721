"""Invariant: gradients of ranks that share utterances equal those of one process that has them all."""

import os
import socket
import time

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.nn.parallel import DistributedDataParallel
from toy_data import toy_settings

from transducer_gn.config import config_parser, read_config
from transducer_gn.data.batches import Batch
from transducer_gn.model.chunk import Chunk
from transducer_gn.training.distributed import World, join_world
from transducer_gn.training.schedule import Weights
from transducer_gn.training.trainer import Trainer
from transducer_gn.training.training_pass import Plan

WEIGHTS = Weights(alpha=0.3, regulariser=0.1)
SETTINGS = {"objective.regulariser_points": "all"}


def some_utterances(trainer):
    batch = next(iter(trainer.batches))
    trainer.batches.set_epoch(0)
    return batch


def part_of(batch, first, last):
    fields = {name: getattr(batch, name)[first:last] for name in Batch.__dataclass_fields__}
    return Batch(**fields)


def gradients(trainer, batch):
    # Without dropout and balancers: the latter nudge gradients by statistics of the batch that they see, so that they
    # depend on how utterances are divided by design.
    trainer.training_pass.eval()
    trainer._backward(Plan(batch, Chunk(2, 4), None, seed=0), WEIGHTS, warmup=1.0, synchronise=True)
    return {name: parameter.grad.clone() for name, parameter in trainer.model.named_parameters()}


def make_trainer(flags, folder, world):
    config, _ = read_config(config_parser("test"), flags)
    return Trainer(config, folder, world)


def run_rank(rank, flags, folder, port, expected, shares):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://localhost:{port}", rank=rank, world_size=2)
    trainer = make_trainer(flags, folder, World(rank, 2, torch.device("cpu"), dist.group.WORLD))
    assert isinstance(trainer.wrapped, DistributedDataParallel)
    alone = make_trainer(flags, folder, World())
    batch = some_utterances(alone)
    for name, value in gradients(trainer, part_of(batch, *shares[rank])).items():
        scale = expected[name].abs().max()
        torch.testing.assert_close(value, expected[name], rtol=1e-3, atol=float(1e-4 * scale) + 1e-6, msg=name)
    # A flag or a number that one rank has, all know; sums are over all.
    assert trainer.world.any(rank == 1) and not trainer.world.any(False)
    assert trainer.world.smallest(3 + rank) == 3
    assert trainer.world.sum({"x": torch.tensor(1.0 + rank)})["x"] == 3
    assert trainer.world.gather(rank) == ([0, 1] if rank == 0 else None)
    dist.destroy_process_group()


@pytest.mark.parametrize("shares", [((0, 2), (2, None)), ((0, 1), (1, None))], ids=["even", "uneven"])
def test_two_ranks_have_the_gradient_of_one_process(shares, toy, tmp_path):
    flags = toy_settings(toy, **SETTINGS)
    trainer = make_trainer(flags, tmp_path, World())
    batch = some_utterances(trainer)
    assert len(batch) >= 4
    expected = gradients(trainer, batch)
    assert all(grad.abs().max() > 0 for grad in expected.values())
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    multiprocessing.spawn(run_rank, (flags, tmp_path, port, expected, shares), nprocs=2)


def join_and_die(rank, attempt, port, delay):
    """A rank under torchrun's agent that ends without a word to anybody."""
    time.sleep(delay)
    variables = {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    variables |= {"TORCHELASTIC_USE_AGENT_STORE": True, "TORCHELASTIC_RESTART_COUNT": attempt, "GROUP_WORLD_SIZE": 1}
    os.environ.update({name: str(value) for name, value in variables.items()})
    with join_world() as world:
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
