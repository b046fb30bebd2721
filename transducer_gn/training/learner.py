"""The parameters and what moves them: one update, from the gradients of its batches to the step of the optimiser."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from math import isfinite

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from transducer_gn.config import Config
from transducer_gn.data.batches import Batch
from transducer_gn.model.chunk import evaluation_chunk
from transducer_gn.model.transducer import Transducer, build_model
from transducer_gn.recognition.averaging import RunningAverage
from transducer_gn.recognition.checkpoint import Checkpoint
from transducer_gn.training.clock import Clock
from transducer_gn.training.distributed import World
from transducer_gn.training.expected_errors import ErrorCounter
from transducer_gn.training.objective import Objective
from transducer_gn.training.optimiser import build_optimiser, build_schedule
from transducer_gn.training.schedule import SchedulePoint
from transducer_gn.training.training_pass import Plan, TrainingPass
from transducer_gn.training.watch import explained_memory_errors


@dataclass(frozen=True)
class Update:
    """What there is to say about an update.

    Attributes:
        sums: for each of its batches, what `objective.metrics` are made of
        log_sums: those at the points of the last batch's references; 0 where there is none
        gradient_norm: before clipping, over all parameters
        bad_plans: batches of this rank whose loss was not finite
        is_skipped: the gradient was not finite, and no parameter was moved
    """

    sums: list[Mapping[str, Tensor]]
    log_sums: Tensor
    gradient_norm: float
    bad_plans: list[Plan]
    is_skipped: bool


def trained_parameters(model: Transducer) -> list[Tensor]:
    """The parameters that training moves: all but those of a frozen front end."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


class Learner:
    """A model in training.

    Args:
        config: all settings
        world: this process among those that train together
        errors: see `TrainingPass`

    Attributes:
        model: the Transducer
        training_pass: the model with its objective
        optimiser: moves the parameters
        schedule: of the learning rate
        scaler: of losses, for gradients in half precision
        average: running average of the parameters
    """

    def __init__(self, config: Config, world: World, errors: ErrorCounter | None = None) -> None:
        torch.manual_seed(config.training.seed)
        # Subnormal numbers, such as occupations far from the diagonal, slow a CPU down many times over.
        torch.set_flush_denormal(True)
        self._config = config
        self._world = world
        self.model = build_model(config.model).to(world.device)
        self.training_pass = TrainingPass(self.model, config, errors)
        self._shared_pass = DistributedDataParallel(self.training_pass) if world.size > 1 else self.training_pass
        self.optimiser = build_optimiser(config.optimiser, trained_parameters(self.model))
        self.schedule = build_schedule(config.optimiser, self.optimiser)
        self.scaler = torch.amp.GradScaler(world.device.type, enabled=config.training.precision == "float16")
        self.average = RunningAverage(self.model)

    def load(self, checkpoint: Checkpoint) -> None:
        """Take over all that a checkpoint holds of these."""
        self.model.load_state_dict(checkpoint.model)
        self.average.load_state_dict(checkpoint.average)
        self.optimiser.load_state_dict(checkpoint.training.optimiser)
        # The optimiser's state holds the learning rate of the run that it comes from; a branch may have its own.
        for group in self.optimiser.param_groups:
            group["initial_lr"] = self._config.optimiser.initial_lr
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
        sums, finite = [], []
        for number, plan in enumerate(plans, 1):
            torch.manual_seed(plan.seed)
            with explained_memory_errors(plan.batch):
                objective = self.backward(plan, point, warmup, clock, is_last=number == len(plans))
            sums.append(objective.sums)
            finite.append(objective.loss.detach().isfinite())
        with clock.part("optimiser"):
            self.scaler.unscale_(self.optimiser)
            norm = float(clip_grad_norm_(self.model.parameters(), self._config.training.clip or torch.inf))
            bad_plans = [plan for plan, good in zip(plans, torch.stack(finite).tolist(), strict=True) if not good]
            is_skipped = not self._may_move(norm, bad_plans)
            self._move(is_skipped)
        return Update(sums, objective.log_sums, norm, bad_plans, is_skipped)

    def backward(
        self, plan: Plan, point: SchedulePoint, warmup: float, clock: Clock, is_last: bool = True
    ) -> Objective:
        """Forward and backward of one batch; gradients of all ranks are added up at the last of an update."""
        shared = self._shared_pass
        with shared.no_sync() if isinstance(shared, DistributedDataParallel) and not is_last else nullcontext():
            objective = shared(plan, point, warmup, clock)
            with clock.part("backward"):
                # Ranks' gradients are averaged; the objective is a sum over utterances, wherever they are.
                self.scaler.scale(objective.loss * self._world.size).backward()
        return objective

    def try_out(self, batch: Batch, point: SchedulePoint) -> None:
        """Forward and backward of a batch that may not fit into memory; moves no parameter."""
        plan = Plan(batch.to(self._world.device), evaluation_chunk(self._config.model.streaming), None, seed=0)
        with explained_memory_errors(batch):
            self.training_pass(plan, point, 1.0, Clock(self._world.device)).loss.backward()
        self.optimiser.zero_grad(set_to_none=True)

    def add_to_average(self, step: int, is_moving: bool) -> None:
        """Count the parameters after `step` updates; while alpha `is_moving`, forget those of other objectives."""
        if is_moving:
            self.average.restart(self.model, step)
        else:
            self.average.add(self.model)

    def _may_move(self, gradient_norm: float, bad_plans: list[Plan]) -> bool:
        """Whether the gradient is finite, or is not only because the scale was too large, which the scaler sees to."""
        # Gradients are the same on all ranks by now, so all take the same branch.
        if isfinite(gradient_norm):
            return True
        return self.scaler.is_enabled() and not self._world.any(bool(bad_plans))

    def _move(self, is_skipped: bool) -> None:
        if is_skipped:
            self.optimiser.zero_grad(set_to_none=True)
        else:
            self.scaler.step(self.optimiser)
        self.scaler.update()
        self.schedule.step_update()
