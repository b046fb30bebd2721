"""The training loop: local training, and branches from it towards global normalisation.

Everything that an update depends on is in a checkpoint or follows from the run's seed and the update's place in its
epoch, so that stopping and resuming anywhere gives the same parameters, bit for bit on a CPU.
"""

import json
import logging
import signal
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from math import isnan
from pathlib import Path
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from transducer_gn.common.errors import UserError
from transducer_gn.common.files import write_text
from transducer_gn.config import Config, changed_settings
from transducer_gn.data.batches import Batches, ResumableBatches
from transducer_gn.data.prepared import PreparedData
from transducer_gn.data.shar import ShardedBatches
from transducer_gn.lattice.recursion import resolve_backend
from transducer_gn.model.transducer import build_model
from transducer_gn.recognition import checkpoint
from transducer_gn.recognition.averaging import RunningAverage
from transducer_gn.recognition.checkpoint import Checkpoint, Progress, TrainingState
from transducer_gn.training import schedule, watch
from transducer_gn.training.clock import Clock
from transducer_gn.training.distributed import World
from transducer_gn.training.logbook import Logbook, describe_run
from transducer_gn.training.objective import SUMS, metrics
from transducer_gn.training.optimiser import build_optimiser, build_schedule, warmup_share
from transducer_gn.training.planning import Planner
from transducer_gn.training.training_pass import Plan, TrainingPass
from transducer_gn.training.validation import Validator


class Trainer:
    """One run in an experiment folder: resumes what is there, or branches off, or begins."""

    def __init__(
        self, config: Config, folder: Path, world: World, branch_from: Path | None = None, allow_changed: bool = False
    ):
        self.config, self.folder, self.world = config, folder, world
        data = PreparedData(Path(config.data.folder))
        self.tokenizer = data.tokenizer(config.model.vocab_size, config.data.token_model)
        self.batches = training_batches(config, data, self.tokenizer, world)
        self.validator = Validator(config, data, self.tokenizer, world)
        torch.manual_seed(config.training.seed)
        # Subnormal numbers, such as occupations far from the diagonal, slow a CPU down many times over.
        torch.set_flush_denormal(True)
        self.model = build_model(config.model).to(world.device)
        self.optimiser = build_optimiser(config.optimiser, self.model.parameters())
        self.schedule = build_schedule(config.optimiser, self.optimiser)
        self.scaler = torch.amp.GradScaler(world.device.type, enabled=config.training.precision == "float16")
        self.average = RunningAverage(self.model)
        self.progress = Progress()
        self.watch = watch.Watch(config.training, config.competitors)
        self.training_pass = TrainingPass(self.model, config)
        self.planner = Planner(self.training_pass, config, world.rank, world.device)
        self.clock = Clock(world.device)
        self.sums = dict.fromkeys(SUMS, torch.zeros((), dtype=torch.float64, device=world.device))
        self.stop_requested = False
        self._start_from(branch_from, allow_changed)
        self.logbook = Logbook(folder, self.progress.step, world.is_first)
        self.wrapped = self.training_pass
        if world.size > 1:
            self.wrapped = DistributedDataParallel(self.training_pass)

    # The run

    def run(self) -> None:
        """Train until the last epoch is done, or a signal asks to stop."""
        backend = resolve_backend(self.config.objective.backend, self.world.device)
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        describe_run(self.config, backend, self.world.size, self.world.device, parameters)
        signal.signal(signal.SIGTERM, self._request_stop)
        if not self.validator.has_data:
            logging.warning("there is no dev set: no validation, and the last epoch counts as the best")
        self.training_pass.train()
        if self.config.training.memory_scan:
            self._scan_memory()
        while self.progress.epoch < self.config.training.epochs and not self.stop_requested:
            self._train_epoch()
        self.logbook.close()

    def _train_epoch(self) -> None:
        progress = self.progress
        # Ranks may differ by a batch; none may wait for a partner that has no more.
        self.batches_in_epoch = self.world.smallest(self.batches.count(progress.epoch))
        if self.batches_in_epoch == 0:
            raise UserError("a rank has no batch; use fewer ranks or lower data.batches.max_duration")
        remaining = islice(iter(self.batches), self.batches_in_epoch - progress.batch)
        plans = self.planner.plans(remaining, progress.epoch, progress.batch, lambda: self._weights().alpha)
        while group := list(islice(plans, self.config.training.accumulate)):
            self._update(group)
            self._after_update()
            if self.world.any(self.stop_requested):
                self.stop_requested = True
                self._save(checkpoint.step_path(self.folder, progress.step))
                logging.info("stopped after update %d on request; the same command goes on from there", progress.step)
                return
        progress.epoch, progress.batch = progress.epoch + 1, 0
        self.batches.set_epoch(progress.epoch)
        self.schedule.step_epoch()
        self._end_epoch()

    # One update

    def _update(self, plans: list[Plan]) -> None:
        """Add up the gradients of the batches and move the parameters."""
        weights, warmup = self._weights(), warmup_share(self.config.optimiser, self.progress.step)
        finite_losses = []
        self.clock.exact = (self.progress.step + 1) % self.config.training.log_interval == 0
        self.optimiser.zero_grad(set_to_none=True)
        for last, plan in enumerate(plans, 1 - len(plans)):
            torch.manual_seed(plan.seed)
            try:
                objective = self._backward(plan, weights, warmup, synchronise=last == 0)
            except RuntimeError as error:
                if watch.is_out_of_memory(error):
                    raise watch.out_of_memory(plan.batch) from error
                raise
            finite_losses.append(objective.loss.detach().isfinite())
            self.sums = {name: total + objective.sums[name] for name, total in self.sums.items()}
        with self.clock.part("optimiser"):
            self.scaler.unscale_(self.optimiser)
            self.gradient_norm = float(clip_grad_norm_(self.model.parameters(), self.config.training.clip or torch.inf))
            self._step_if_finite(plans, torch.stack(finite_losses).tolist())
            self.schedule.step_update()
        self.progress.step += 1
        self.progress.batch += len(plans)
        self.last_log_sums = objective.log_sums

    def _backward(self, plan: Plan, weights: schedule.Weights, warmup: float, synchronise: bool):
        """Forward and backward of one batch; gradients of all ranks are added up at the last of an update."""
        together = synchronise or self.world.size == 1
        with nullcontext() if together else self.wrapped.no_sync():
            objective = self.wrapped(plan, weights, warmup, self.clock)
            with self.clock.part("backward"):
                # Ranks' gradients are averaged; the objective is a sum over utterances, wherever they are.
                self.scaler.scale(objective.loss * self.world.size).backward()
        return objective

    def _step_if_finite(self, plans: list[Plan], finite: list[bool]) -> None:
        """Move the parameters unless the gradient is not finite, in which case the batch at fault is kept."""
        # Gradients are the same on all ranks by now, so all take the same branch.
        if torch.isfinite(torch.tensor(self.gradient_norm)) or self.scaler.is_enabled() and not self.world.any(not all(finite)):
            self.scaler.step(self.optimiser)
            self.scaler.update()
            return
        self.optimiser.zero_grad(set_to_none=True)
        self.scaler.update()
        for plan in [plan for plan, is_finite in zip(plans, finite, strict=True) if not is_finite]:
            path = watch.save_batch(self.folder, plan.batch, self.progress.step + 1, self.world.rank)
            logging.warning("the loss of utterances %s is not finite; their batch is kept in %s", plan.batch.ids, path)
        self.watch.skipped(self.progress.step + 1)

    # Between updates

    def _after_update(self) -> None:
        training, step = self.config.training, self.progress.step
        if step % training.average_period == 0:
            self._add_to_average()
        if step % training.log_interval == 0:
            self._log()
        if step % training.validate_interval == 0 and self.validator.has_data:
            self._validate()
        if step % training.save_interval == 0:
            self._save(checkpoint.step_path(self.folder, step))
            if self.world.is_first:
                checkpoint.remove_old_checkpoints(self.folder, training.keep_last)

    def _end_epoch(self) -> None:
        self._add_to_average()
        wer = self._validate()["wer"] if self.validator.has_data else float("nan")
        progress, alpha = self.progress, self._weights().alpha
        if not wer >= progress.best_wer or alpha != progress.best_alpha:
            progress.best_epoch, progress.best_wer, progress.best_alpha = progress.epoch, wer, alpha
        self._save(checkpoint.epoch_path(self.folder, progress.epoch))
        if self.world.is_first:
            wer = None if isnan(progress.best_wer) else progress.best_wer
            best = {"epoch": progress.best_epoch, "wer": wer, "last_epoch": progress.epoch}
            write_text(self.folder / "best.json", json.dumps(best) + "\n")
        logging.info("epoch %d done; best so far: epoch %d", progress.epoch, progress.best_epoch)

    def _add_to_average(self) -> None:
        if schedule.alpha_is_moving(self.config.normalisation, self._epochs_since_branch()):
            self.average.restart(self.model, self.progress.step)
        else:
            self.average.add(self.model)

    def _log(self) -> None:
        progress, weights = self.progress, self._weights()
        values = metrics(self.world.sum(self.sums))
        if not self.config.normalisation.exact:
            self.watch.look_at(progress.step, values, weights.alpha, self.config.training.log_interval)
        self.sums = {name: torch.zeros_like(total) for name, total in self.sums.items()}
        values |= {
            "alpha": weights.alpha,
            "regulariser_weight": weights.regulariser,
            "diagonal_prior": weights.diagonal_prior,
            "learning_rate": self.optimiser.param_groups[0]["lr"],
            "gradient_norm": self.gradient_norm,
        }
        values |= {f"seconds_{name}": seconds for name, seconds in self.clock.take().items()}
        epoch = float(progress.epoch + self._share_of_epoch())
        self.logbook.metrics("train", progress.step, epoch, values)
        self.logbook.histogram("train/log_sum", progress.step, self.last_log_sums[self.last_log_sums != 0])
        first, total = self.first_epoch, self.config.training.epochs
        text = f"epoch {epoch:.2f} of {total}, update {progress.step}: loss {values['loss']:.4f}, alpha {weights.alpha:.2f}"
        self.logbook.progress(text, (epoch - first) / max(total - first, 1e-9))

    def _validate(self) -> dict[str, float]:
        # The prior is part of how to train, not of how good the model is.
        result = self.validator.validate(self.training_pass, replace(self._weights(), diagonal_prior=0.0))
        step, epoch = self.progress.step, float(self.progress.epoch + self._share_of_epoch())
        self.logbook.metrics("valid", step, epoch, result.values)
        self.logbook.sentences(step, result.sentences)
        logging.info("dev set at update %d: WER %.2f, loss %.4f per frame", step, result.values["wer"], result.values["loss"])
        return result.values

    # Where training is

    def _share_of_epoch(self) -> Fraction:
        return schedule.position(0, self.progress.batch, self.batches_in_epoch)

    def _epochs_since_branch(self) -> Fraction:
        return self.progress.epoch - self.progress.branch_epoch + self._share_of_epoch()

    def _weights(self) -> schedule.Weights:
        weights = schedule.weights_at(self.config.normalisation, self._epochs_since_branch())
        epochs = self.progress.epoch + self._share_of_epoch()
        return replace(weights, diagonal_prior=schedule.diagonal_prior_at(self.config.alignment, epochs))

    def _request_stop(self, *_: Any) -> None:
        self.stop_requested = True

    # Checkpoints

    def _save(self, path: Path) -> None:
        pending = self.world.gather(self.planner.state_dict())
        sums = self.world.gather({name: float(total) for name, total in self.sums.items()})
        if self.world.is_first:
            Checkpoint(
                config=self.config,
                progress=self.progress,
                model=self.model.state_dict(),
                average=self.average.state_dict(),
                tokenizer=self.tokenizer.model,
                training=TrainingState(
                    optimiser=self.optimiser.state_dict(),
                    schedule=self.schedule.state_dict(),
                    scaler=self.scaler.state_dict(),
                    watch=self.watch.state_dict(),
                    batches=self.batches.state_dict()["identity"],
                    pending=pending,
                    sums=sums,
                ),
            ).save(path)
        self.world.wait()

    def _start_from(self, branch_from: Path | None, allow_changed: bool) -> None:
        """Load the newest checkpoint of the folder, or else the one to branch from, or else begin."""
        found = checkpoint.newest_checkpoint(self.folder)
        if found is not None:
            path, content = found
            changed = changed_settings(content.config, self.config)
            if changed and not allow_changed:
                raise UserError(
                    f"{path} was made with other settings: {'; '.join(changed)}. Give those, or use another --exp-dir, or "
                    "say --allow-changed"
                )
            self._load(content)
            rank = min(self.world.rank, len(content.training.pending) - 1)
            self.planner.load_state_dict(content.training.pending[rank])
            self.sums = {name: torch.full_like(self.sums[name], x) for name, x in content.training.sums[rank].items()}
            self.watch.load_state_dict(content.training.watch)
            logging.info("resuming from %s: epoch %d, update %d", path, self.progress.epoch + 1, self.progress.step)
        elif branch_from is not None:
            self._branch(branch_from)
        if self.progress.batch > 0:
            self.batches.load_state_dict(
                {"epoch": self.progress.epoch, "consumed": self.progress.batch, "identity": content.training.batches}
            )
        else:
            self.batches.set_epoch(self.progress.epoch)
        self.first_epoch = self.progress.epoch
        self.batches_in_epoch = 1

    def _branch(self, path: Path) -> None:
        """Take over parameters, optimiser, schedules, counters and averages, at the end of an epoch."""
        content = checkpoint.load_checkpoint(path)
        changed = [x for x in changed_settings(content.config, self.config) if x.startswith("model.")]
        if changed:
            raise UserError(f"--branch-from {path} is a model of other settings: {'; '.join(changed)}")
        if content.progress.batch != 0:
            raise UserError(f"--branch-from {path} lies within an epoch; branch from an epoch-N.pt")
        self._load(content)
        self.progress.branch_epoch = self.progress.epoch
        self.progress.best_epoch, self.progress.best_wer = 0, float("inf")
        logging.info("branching from %s after epoch %d, update %d", path, self.progress.epoch, self.progress.step)

    def _load(self, content: Checkpoint) -> None:
        self.model.load_state_dict(content.model)
        self.average.load_state_dict(content.average)
        self.optimiser.load_state_dict(content.training.optimiser)
        # The optimiser's state holds the learning rate of the run that it comes from; a branch may have its own.
        for group in self.optimiser.param_groups:
            group["initial_lr"] = self.config.optimiser.initial_lr
        self.schedule.load_state_dict(content.training.schedule)
        self.scaler.load_state_dict(content.training.scaler)
        self.progress = content.progress

    def _scan_memory(self) -> None:
        """Try the largest batches, forward and backward, without moving any parameter."""
        weights = schedule.Weights(self.config.normalisation.alpha, self.config.normalisation.regulariser)
        for batch in self.batches.largest(self.progress.epoch):
            plan = Plan(batch.to(self.world.device), self.validator.chunk, None, seed=0)
            try:
                objective = self.training_pass(plan, weights, 1.0, Clock(self.world.device))
                objective.loss.backward()
            except RuntimeError as error:
                if watch.is_out_of_memory(error):
                    raise watch.out_of_memory(batch) from error
                raise
        self.optimiser.zero_grad(set_to_none=True)


def training_batches(config: Config, data: PreparedData, tokenizer, world: World) -> ResumableBatches:
    """This rank's training batches."""
    settings = config.data.batches
    common = dict(noise=data.noise_cuts() if settings.noise.enabled else None, rank=world.rank, world_size=world.size)
    if config.data.shar:
        return ShardedBatches(data.folder / "shar" / "train", tokenizer, settings, **common)
    return Batches(data.train_cuts(), tokenizer, settings, training=True, **common)
