"""What the parts of an update at the paper's size dispatch in the path that an accelerator takes.

Encoder and optimiser run on the meta device: nothing is computed, and any look at a value would raise. Objective and
search run on a CPU that stands in for an accelerator, since what they dispatch depends on values.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import torch
from launch_counter import LaunchCounter, Part
from planted_step import CHUNK, PlantedPass, random_batch, with_references
from planted_weights import PlantedModel
from torch.nn.utils import clip_grad_norm_

from transducer_gn.common import quick
from transducer_gn.common.framing import FILTER_BANKS
from transducer_gn.config import Config
from transducer_gn.lattice import recursion, tiles, tree_lattice
from transducer_gn.model import activation
from transducer_gn.model.transducer import Transducer, build_model
from transducer_gn.search import beam as beam_module
from transducer_gn.training.clock import Clock
from transducer_gn.training.optimiser import build_optimiser
from transducer_gn.training.schedule import SchedulePoint
from transducer_gn.training.training_pass import Plan


@contextmanager
def as_on_an_accelerator() -> Iterator[None]:
    """What runs on a CPU within this block takes the path of a GPU; on the meta device it does by itself, nearly."""
    with (
        mock.patch.object(beam_module, "may_look", return_value=False),
        mock.patch.dict(tiles.ACROSS_UTTERANCES, cpu=tiles.ACROSS_UTTERANCES["cuda"]),
        mock.patch.dict(tiles.PAIR_POINTS, cpu=tiles.PAIR_POINTS["cuda"]),
        mock.patch.dict(tiles.FULL_POINTS, cpu=tiles.FULL_POINTS["cuda"]),
        mock.patch.object(quick, "DEVICES", frozenset()),
        # Of dropout, and of operations on lists, torch has fused kernels for CUDA that it does not use for meta.
        mock.patch.object(activation.functional, "dropout", lambda x, p: torch.native_dropout(x, p, True)[0]),
        mock.patch("torch.nn.utils.clip_grad._has_foreach_support", return_value=True),
    ):
        yield


class Parts(Clock):
    """Tells a counter which part of an update runs."""

    def __init__(self, counter: LaunchCounter) -> None:
        super().__init__(torch.device("cpu"))
        self._counter = counter

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the block for part `name`."""
        with self._counter.part(name):
            yield


@contextmanager
def recursion_apart(counter: LaunchCounter) -> Iterator[None]:
    """Count the recursion for a part of its own, forward and backward."""

    def counted(call: Callable[..., object]) -> Callable[..., object]:
        def run(*arguments: object) -> object:
            with counter.part("recursion"):
                return call(*arguments)

        return run

    backward = recursion._TorchRecursion.backward
    with (
        mock.patch.object(tree_lattice, "sequence_scores", counted(recursion.sequence_scores)),
        mock.patch.object(recursion._TorchRecursion, "backward", staticmethod(counted(backward))),
    ):
        yield


def empty_model(config: Config) -> Transducer:
    """The configured model, on the meta device."""
    with torch.device("meta"):
        return build_model(config.model).train()


def encoder_parts(config: Config, utterances: int, seconds: float) -> dict[str, Part]:
    """The encoder: forward, backward, and the forward pass of a search ahead of time."""
    encoder = empty_model(config).encoder
    features = torch.empty(utterances, round(seconds * 100), 80, device="meta")
    lengths = torch.empty(utterances, dtype=torch.long, device="meta")
    with as_on_an_accelerator(), LaunchCounter("meta") as counter:
        with counter.part("encoder"):
            frames, _ = encoder(features, lengths, CHUNK)
        gradient = torch.empty_like(frames)
        with counter.part("encoder backward"):
            frames.backward(gradient)
        with counter.part("encoder ahead"), torch.no_grad():
            encoder.eval()(features, lengths, CHUNK)
    return {name: part for name, part in counter.parts.items() if name != "all"}


def optimiser_parts(config: Config) -> dict[str, Part]:
    """The step of the optimiser, and the norm of the gradient with what follows from it, as `Learner.update` does."""
    model = empty_model(config)
    optimiser = build_optimiser(config.optimiser, model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.empty_like(parameter)
    optimiser.step()  # makes its state
    with as_on_an_accelerator(), LaunchCounter("meta") as counter:
        with counter.part("optimiser"):
            optimiser.step()
        with counter.part("gradient norm"):
            clip_grad_norm_(model.parameters(), torch.inf)
            # The host reads the norm, and whether losses were finite.
            counter.current.waits["aten::_local_scalar_dense"] += 2
    return {name: part for name, part in counter.parts.items() if name != "all"}


def objective_parts(config: Config, utterances: int, seconds: float, point: SchedulePoint) -> dict[str, Part]:
    """Everything behind the encoder: search, objective, recursion, and backward of the latter two."""
    torch.manual_seed(0)
    model = PlantedModel(config.model.vocab_size, config.model.encoder.dim)
    batch = random_batch(utterances, seconds)
    frame_lengths = FILTER_BANKS.encoder_lengths(batch.feature_lengths)
    encoder_out = model.encoder_out(utterances, int(frame_lengths.max()))
    training_pass = PlantedPass(model, config).train()
    batch, _ = with_references(training_pass, encoder_out, frame_lengths, batch)
    encoder_out.requires_grad_()
    with as_on_an_accelerator(), LaunchCounter() as counter, recursion_apart(counter):
        plan = Plan(batch, CHUNK, None, seed=0)
        objective = training_pass.objective(encoder_out, frame_lengths, plan, point, Parts(counter))
        with counter.part("objective backward"):
            objective.loss.backward()
    return {name: part for name, part in counter.parts.items() if name != "all"}
