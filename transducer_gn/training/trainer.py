"""The training loop: local training, and branches from it towards global normalisation.

The way of one update, and where each part of it is:

    plans    planning.Planner        the next batches: their chunk, their seed and, with look-ahead, their competitors
    point    schedule                alpha and the weights of regulariser and prior, from where training is
    update   learner.Learner         forward and backward of each batch, then one step of the optimiser
               training_pass           encoder, search for competitors, prefix tree, predictor
               objective               (1 - alpha) log Z - log P(reference) + regulariser
    after    bookkeeper.Bookkeeper   running average, log, validation, checkpoints

How a run starts, resumes or branches off is in `start`. Everything that an update depends on is in a checkpoint or
follows from the run's seed and the update's place in its epoch, so that stopping and resuming anywhere gives the same
parameters, bit for bit on a CPU.
"""

import logging
import signal
from itertools import islice
from pathlib import Path
from typing import Any

from transducer_gn.config import Config
from transducer_gn.recognition.checkpoint import step_path
from transducer_gn.training.bookkeeper import Bookkeeper
from transducer_gn.training.check import scan_memory
from transducer_gn.training.clock import Clock
from transducer_gn.training.distributed import World
from transducer_gn.training.logbook import describe_run
from transducer_gn.training.optimiser import warmup_share
from transducer_gn.training.schedule import SchedulePoint, schedule_point
from transducer_gn.training.start import count_batches, recursion_backend, start_run
from transducer_gn.training.training_pass import Plan


class StopRequest:
    """Remembers that a signal asked to stop; a handler that stays in place and does not keep the trainer alive."""

    def __init__(self) -> None:
        self.is_made = False

    def __call__(self, *_: Any) -> None:
        self.is_made = True


class Trainer:
    """One run in an experiment folder: resumes what is there, or branches off, or begins.

    Args:
        config: all settings
        folder: of the experiment; must exist
        world: this process among those that train together
        branch_from: an epoch-N.pt of another run
        allow_changed: resume even if settings that matter have changed

    Attributes:
        state: the run as it is, see `start.RunState`
        bookkeeper: what happens between updates
        stop: whether to save and stop after the current update
    """

    def __init__(
        self, config: Config, folder: Path, world: World, branch_from: Path | None = None, allow_changed: bool = False
    ) -> None:
        self.config, self.folder, self.world = config, folder, world
        self.state = start_run(config, folder, world, branch_from, allow_changed)
        self.clock = Clock(world.device)
        self.bookkeeper = Bookkeeper(config, folder, world, self.state, self.clock)
        self.stop = StopRequest()

    def run(self) -> None:
        """Train until the last epoch is done, or a signal asks to stop."""
        self._describe()
        signal.signal(signal.SIGTERM, self.stop)
        self.state.learner.training_pass.train()
        if self.config.training.memory_scan:
            scan_memory(self.config, self.state)
        while not self._is_done() and not self._must_stop():
            self._train_epoch()
        if not self._is_done():
            step = self.state.progress.step
            logging.info("stopped after update %d on request; the same command goes on from there", step)
        self.bookkeeper.close()

    def _is_done(self) -> bool:
        return self.state.progress.epoch >= self.config.training.epochs

    def _must_stop(self) -> bool:
        """Whether any rank was asked to stop; then all of them are, since none may wait for another that has left."""
        self.stop.is_made = self.world.any(self.stop.is_made)
        return self.stop.is_made

    def _train_epoch(self) -> None:
        """Train on what is left of the epoch."""
        progress, planner = self.state.progress, self.state.planner
        self._begin_epoch()
        while plans := planner.next_plans(self.config.training.accumulate, self._point().alpha):
            self._update(plans)
            if self._must_stop():
                self.bookkeeper.save(step_path(self.folder, progress.step))
                return
        progress.end_epoch()
        self.state.learner.schedule.step_epoch()
        self.bookkeeper.after_epoch()

    def _update(self, plans: list[Plan]) -> None:
        """Move the parameters once by the gradients of the planned batches, and keep the books."""
        progress = self.state.progress
        self.clock.exact = (progress.step + 1) % self.config.training.log_interval == 0
        warmup = warmup_share(self.config.optimiser, progress.step)
        update = self.state.learner.update(plans, self._point(), warmup, self.clock)
        progress.count_update(len(plans))
        self.bookkeeper.after_update(update)

    def _begin_epoch(self) -> None:
        """Hand the batches that are left of the epoch to the planner."""
        progress, batches = self.state.progress, self.state.batches
        count = count_batches(self.state, self.world)
        left = islice(batches.starting_at(progress.epoch, progress.batch), count - progress.batch)
        self.state.planner.begin(left, progress.epoch, progress.batch)

    def _point(self) -> SchedulePoint:
        return schedule_point(self.config, self.state.progress)

    def _describe(self) -> None:
        backend = recursion_backend(self.config, self.world)
        parameters = sum(parameter.numel() for parameter in self.state.learner.model.parameters())
        describe_run(self.config, backend, self.world.size, self.world.device, parameters)
