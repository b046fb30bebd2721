"""The parameters and what moves them: one update, from the gradients of its batches to the step of the optimiser."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import isfinite

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from transducer_gn.common.memory import keep_freed_memory
from transducer_gn.config import Config
from transducer_gn.data.batches import Batch
from transducer_gn.model.chunk import evaluation_chunk
from transducer_gn.model.transducer import Transducer, build_model
from transducer_gn.recognition.averaging import RunningAverage
from transducer_gn.recognition.checkpoint import Checkpoint
from transducer_gn.search.competitors import longest_competitors
from transducer_gn.training.clock import Clock
from transducer_gn.training.distributed import World
from transducer_gn.training.expected_errors import ErrorCounter
from transducer_gn.training.not_finite import Fault, alarmed
from transducer_gn.training.objective import Objective
from transducer_gn.training.optimiser import build_optimiser, build_schedule, load_optimiser
from transducer_gn.training.reading import Reader
from transducer_gn.training.schedule import SchedulePoint
from transducer_gn.training.training_pass import Plan, TrainingPass
from transducer_gn.training.watch import explained_memory_errors


@dataclass(frozen=True)
class Update:
    """What there is to say about an update.

    Attributes:
        sums: for each of its batches with a finite loss, what `objective.metrics` are made of
        log_sums: those at the points of the last batch's references; 0 where there is none
        gradient_norm: before clipping, over all parameters
        is_skipped: the gradient was not finite, and no parameter was moved
        faults: batches of this rank that it was left out for, or may have been
    """

    sums: list[Mapping[str, Tensor]]
    log_sums: Tensor
    gradient_norm: float
    is_skipped: bool
    faults: list[Fault]


def trained_parameters(model: Transducer) -> tuple[list[Tensor], list[Tensor]]:
    """The parameters that training moves: those that begin at random, and those of a front end that is not frozen."""
    pretrained = list(model.front_end.parameters()) if model.front_end is not None else []
    ours = {id(parameter) for parameter in pretrained}
    own: list[Tensor] = [parameter for parameter in model.parameters() if id(parameter) not in ours]
    return own, [parameter for parameter in pretrained if parameter.requires_grad]


class Learner:
    """A model in training.

    Args:
        config: all settings
        world: this process among those that train together
        errors, reader: see `TrainingPass`

    Attributes:
        model: the Transducer
        training_pass: the model with its objective
        optimiser: moves the parameters
        schedule: of the learning rate
        scaler: of losses, for gradients in half precision
        average: running average of the parameters
    """

    def __init__(
        self, config: Config, world: World, errors: ErrorCounter | None = None, reader: Reader | None = None
    ) -> None:
        torch.manual_seed(config.training.seed)
        # Subnormal numbers, such as occupations far from the diagonal, slow a CPU down many times over.
        torch.set_flush_denormal(True)
        if world.device.type == "cpu":
            keep_freed_memory()
        self._config = config
        self._world = world
        self.model = build_model(config.model).to(world.device)
        self.training_pass = TrainingPass(self.model, config, errors, reader)
        self._shared_pass = DistributedDataParallel(self.training_pass) if world.size > 1 else self.training_pass
        self.optimiser = build_optimiser(config.optimiser, *trained_parameters(self.model))
        self.schedule = build_schedule(config.optimiser, self.optimiser)
        self.scaler = torch.amp.GradScaler(world.device.type, enabled=config.training.precision == "float16")
        self.average = RunningAverage(self.model)

    def load(self, checkpoint: Checkpoint) -> None:
        """Take over all that a checkpoint holds of these."""
        self.model.load_state_dict(checkpoint.model)
        # Anew, since what was frozen in the run that the checkpoint comes from is not in its average.
        self.average = RunningAverage(self.model)
        self.average.load_state_dict(checkpoint.average)
        load_optimiser(self.optimiser, checkpoint.training.optimiser, self._config.optimiser)
        self.schedule.load_state_dict(checkpoint.training.schedule)
        # A branch from a run in another precision begins with a scale of its own.
        if checkpoint.training.scaler:
            self.scaler.load_state_dict(checkpoint.training.scaler)

    def update(self, plans: list[Plan], point: SchedulePoint, warmup: float, clock: Clock) -> Update:
        """Add up the gradients of the batches and move the parameters.

        Args:
            plans: one or more batches
            point: what the objective is computed with
            warmup: share of the encoder's warm-up that is done
            clock: counts the time of each part
        """
        self.optimiser.zero_grad(set_to_none=True)
        self.schedule.cool_down(point.cooldown)
        objectives = []
        for number, plan in enumerate(plans, 1):
            torch.manual_seed(plan.seed)
            with explained_memory_errors(plan.batch):
                objective = self.backward(plan, point, warmup, clock, is_last=number == len(plans))
            objectives.append(objective)
        with clock.part("optimiser"):
            self.scaler.unscale_(self.optimiser)
            norms = clip_grad_norm_(self.model.parameters(), self._config.training.clip or torch.inf)
            # The only look at the device of an update that goes well.
            finite = [objective.loss.detach().isfinite().to(norms) for objective in objectives]
            norm, *finite = torch.stack([norms, *finite]).tolist()
            sound = [objective for objective, is_finite in zip(objectives, finite, strict=True) if is_finite]
            faults = [
                Fault(plan.batch, objective.fault or "the loss is not finite")
                for plan, objective, is_finite in zip(plans, objectives, finite, strict=True)
                if not is_finite
            ]
            is_skipped = not isfinite(norm) and self._must_skip(faults)
            if is_skipped and not self._world.any(bool(faults)):
                faults = [Fault(plan.batch, "the gradient is not finite, though the loss is") for plan in plans]
            self._move(is_skipped)
        log_sums = sound[-1].log_sums if sound else norms.new_zeros(0)
        return Update([objective.sums for objective in sound], log_sums, norm, is_skipped, faults)

    def backward(
        self, plan: Plan, point: SchedulePoint, warmup: float, clock: Clock, is_last: bool = True
    ) -> Objective:
        """Forward and backward of one batch; gradients of all ranks are added up at the last of an update."""
        shared = self._shared_pass
        with shared.no_sync() if isinstance(shared, DistributedDataParallel) and not is_last else nullcontext():
            objective = shared(plan, point, warmup, clock)
            with clock.part("backward"):
                # Ranks' gradients are averaged; the objective is a sum over utterances, wherever they are.
                loss = alarmed(objective.loss * self._world.size, self.model.parameters())
                self.scaler.scale(loss).backward()
        return objective

    def try_out(self, batch: Batch, point: SchedulePoint) -> None:
        """Forward and backward of a batch that may not fit into memory; moves no parameter.

        A search of the model as it is tells little about later ones: after it, competitors are as long as is allowed.
        """
        plan = Plan(batch.to(self._world.device), evaluation_chunk(self._config.model.streaming), None, seed=0)
        with explained_memory_errors(batch):
            if point.needs_competitors and not self._config.normalisation.exact:
                with torch.no_grad():
                    encoded = self.training_pass.encode(plan.batch, plan.chunk)
                    self.training_pass.search(*encoded, plan.batch, point.alpha)
                lengths, size = plan.batch.token_lengths, self._config.model.vocab_size
                plan = replace(plan, competitors=longest_competitors(lengths, self._config.competitors, size))
            self.training_pass(plan, point, 1.0, Clock(self._world.device)).loss.backward()
        self.optimiser.zero_grad(set_to_none=True)

    def add_to_average(self, step: int, is_moving: bool) -> None:
        """Count the parameters after `step` updates; while alpha `is_moving`, forget those of other objectives."""
        if is_moving:
            self.average.restart(self.model, step)
        else:
            self.average.add(self.model)

    def _must_skip(self, faults: list[Fault]) -> bool:
        """Whether a gradient that is not finite has another reason than a scale too large, which the scaler sees to.

        Gradients are the same on all ranks by now, so that all come here.
        """
        return not self.scaler.is_enabled() or self.scaler.get_scale() <= 1 or self._world.any(bool(faults))

    def _move(self, is_skipped: bool) -> None:
        if is_skipped:
            self.optimiser.zero_grad(set_to_none=True)
            # A lower scale would not have helped.
            self.scaler.update(self.scaler.get_scale() if self.scaler.is_enabled() else None)
        else:
            self.scaler.step(self.optimiser)
            self.scaler.update()
        self.schedule.step_update()
