"""What happens between updates: the running average, the log, validation, checkpoints."""

import json
import logging
from dataclasses import asdict, replace
from math import isnan, nan
from pathlib import Path

import torch

from transducer_gn.common.files import write_text
from transducer_gn.common.run_files import BEST, BestEpoch
from transducer_gn.config import Config
from transducer_gn.data.prepared import PreparedData
from transducer_gn.recognition.checkpoint import (
    Checkpoint,
    TrainingState,
    epoch_path,
    note_branch,
    remove_old_checkpoints,
    remove_old_epochs,
    step_path,
)
from transducer_gn.training.clock import Clock
from transducer_gn.training.distributed import World
from transducer_gn.training.learner import Update
from transducer_gn.training.logbook import Logbook
from transducer_gn.training.not_finite import check_parameters, save_batch
from transducer_gn.training.objective import metrics
from transducer_gn.training.schedule import schedule_point
from transducer_gn.training.start import RunState
from transducer_gn.training.validation import Validator


class Bookkeeper:
    """Keeps the records of a run in its folder."""

    def __init__(self, config: Config, folder: Path, world: World, state: RunState, clock: Clock) -> None:
        self._config = config
        self._folder = folder
        self._world = world
        self._state = state
        self._clock = clock
        self._first_epoch = state.progress.epoch
        self._validator = Validator(config, PreparedData(Path(config.data.folder)), state.tokenizer, world)
        self._logbook = Logbook(folder, state.progress.step, world.is_first)
        if state.branched_from is not None and world.is_first:
            note_branch(folder, state.branched_from)
        if state.progress.best_epoch:
            # A run that was killed may have written the epoch but not this note of it.
            self._note_best_epoch()
        if not self._validator.has_data:
            logging.warning("there is no dev set: no validation, and the last epoch counts as the best")

    def after_update(self, update: Update) -> None:
        """Count the update's metrics, and do what is due every so many updates."""
        training, step = self._config.training, self._state.progress.step
        for sums in update.sums:
            self._state.sums = {name: total + sums[name] for name, total in self._state.sums.items()}
        if update.is_skipped:
            self._note_skipped(update)
        if step % training.average_period == 0:
            self._add_to_average()
        if step % training.log_interval == 0:
            self._log(update)
        if step % training.validate_interval == 0 and self._validator.has_data:
            self.validate()
        if step % training.save_interval == 0:
            self.save(step_path(self._folder, step))
            if self._world.is_first:
                remove_old_checkpoints(self._folder, training.keep_last)

    def after_epoch(self) -> None:
        """Validate, note the best epoch so far, and save."""
        self._add_to_average()
        wer = self.validate() if self._validator.has_data else nan
        self._state.watch.end_epoch()
        progress = self._state.progress
        progress.compare(wer, schedule_point(self._config, progress).alpha)
        self.save(epoch_path(self._folder, progress.epoch))
        keep = self._config.training.keep_epochs
        if keep is not None and self._world.is_first:
            remove_old_epochs(self._folder, keep, {progress.best_epoch, *self._config.training.keep_always})
        self._note_best_epoch()
        logging.info("epoch %d done; best so far: epoch %d", progress.epoch, progress.best_epoch)

    def validate(self) -> float:
        """Write down how good the model is on the dev set; gives the word error rate in per cent."""
        progress = self._state.progress
        check_parameters(self._state.learner.model, progress.step, self._folder)
        # The prior is part of how to train, not of how good the model is.
        point = replace(schedule_point(self._config, progress), diagonal_prior=0.0)
        result = self._validator.validate(self._state.learner.training_pass, point)
        wer, loss = result.values["wer"], result.values["loss"]
        self._logbook.metrics("valid", progress.step, float(progress.epochs), result.values)
        self._logbook.sentences(progress.step, result.sentences)
        logging.info("dev set at update %d: WER %.2f, loss %.4f per frame", progress.step, wer, loss)
        return wer

    def save(self, path: Path) -> None:
        """Write a checkpoint of all ranks' state."""
        state, learner = self._state, self._state.learner
        check_parameters(learner.model, state.progress.step, self._folder)
        pending = [{name: value.cpu() for name, value in vars(each).items()} for each in state.planner.pending]
        all_pending = self._world.gather(pending)
        all_sums = self._world.gather({name: float(total) for name, total in state.sums.items()})
        if all_pending is not None and all_sums is not None:
            Checkpoint(
                config=self._config,
                progress=state.progress,
                model=learner.model.state_dict(),
                average=learner.average.state_dict(),
                tokenizer=state.tokenizer.model,
                training=TrainingState(
                    optimiser=learner.optimiser.state_dict(),
                    schedule=learner.schedule.state_dict(),
                    scaler=learner.scaler.state_dict(),
                    watch=state.watch.state_dict(),
                    batches=state.batches.identity(),
                    pending=all_pending,
                    sums=all_sums,
                ),
            ).save(path)
        self._world.wait()

    def close(self) -> None:
        """End what writes in the background."""
        self._logbook.close()

    def _note_best_epoch(self) -> None:
        """Write down the best epoch so far, for those who only look at the folder."""
        progress = self._state.progress
        if self._world.is_first:
            best_wer = None if isnan(progress.best_wer) else progress.best_wer
            best = BestEpoch(progress.best_epoch, best_wer, progress.epoch)
            write_text(self._folder / BEST, json.dumps(asdict(best)) + "\n")

    def _add_to_average(self) -> None:
        progress = self._state.progress
        is_moving = schedule_point(self._config, progress).alpha > self._config.normalisation.alpha
        self._state.learner.add_to_average(progress.step, is_moving)

    def _note_skipped(self, update: Update) -> None:
        """Keep the batches at fault for inspection; too many such updates end training."""
        step = self._state.progress.step
        for number, fault in enumerate(update.faults):
            path = save_batch(self._folder, fault.batch, step, self._world.rank, number)
            sentence = fault.sentence(self._config.training.precision)
            logging.warning("update %d: %s; the batch is kept in %s", step, sentence, path)
        check_parameters(self._state.learner.model, step - 1, self._folder)
        self._state.watch.skipped(step)

    def _log(self, update: Update) -> None:
        """One line of metrics over the updates since the last."""
        state, progress, point = self._state, self._state.progress, schedule_point(self._config, self._state.progress)
        sums = self._world.sum(state.sums)
        # If all updates since the last line were left out, there is nothing to say of their objective.
        values = metrics(sums) if sums["utterances"] > 0 else {}
        state.sums = {name: torch.zeros_like(total) for name, total in state.sums.items()}
        if values and not self._config.normalisation.exact:
            state.watch.look_at(progress.step, values, point.alpha, self._config.training.log_interval)
        values |= {
            "alpha": point.alpha,
            "regulariser_weight": point.regulariser,
            "diagonal_prior": point.diagonal_prior,
            "learning_rate": state.learner.optimiser.param_groups[0]["lr"],
            **({} if update.is_skipped else {"gradient_norm": update.gradient_norm}),
            "skipped": float(state.watch.bad_batches),
        }
        values |= {f"seconds_{name}": seconds for name, seconds in self._clock.take().items()}
        epochs = float(progress.epochs)
        self._logbook.metrics("train", progress.step, epochs, values)
        self._logbook.histogram("train/log_sum", progress.step, update.log_sums[update.log_sums != 0])
        total, loss = self._config.training.epochs, values.get("loss", nan)
        text = f"epoch {epochs:.2f} of {total}, update {progress.step}: loss {loss:.4f}, alpha {point.alpha:.2f}"
        self._logbook.progress(text, (epochs - self._first_epoch) / max(total - self._first_epoch, 1e-9))
