"""A predictor that reads before it hears: training on text alone, for a run to begin with."""

import logging
from pathlib import Path

from torch import Tensor

from transducer_gn.common.errors import UserError
from transducer_gn.common.seeds import stable_seed
from transducer_gn.config import Config, changed_settings
from transducer_gn.data.prepared import PreparedData
from transducer_gn.data.text import Text
from transducer_gn.data.tokenizer import Tokenizer
from transducer_gn.recognition.checkpoint import (
    Checkpoint,
    Progress,
    TrainingState,
    epoch_path,
    load_checkpoint,
    newest_checkpoint,
    remove_old_checkpoints,
    step_path,
)
from transducer_gn.training.distributed import World
from transducer_gn.training.learner import Learner
from transducer_gn.training.not_finite import check_parameters
from transducer_gn.training.reading import cross_entropy


def read_first(config: Config, folder: Path, world: World, updates: int) -> Path:
    """Train predictor and joiner on text; gives the checkpoint, `epoch-0.pt`. Goes on where it was stopped.

    The learning rate falls from `optimiser.initial_lr` to 0 along a line, so that a text that is read once is known
    best at its end.

    Args:
        config: of the system that is to begin with them; `reading` says what is read
        folder: for checkpoints
        world: this process and its device; one process reads
        updates: how many updates of `reading.tokens` tokens each
    """
    if config.reading.text is None:
        raise UserError("reading.text: which text is to be read? Give a file with a sentence per line")
    done = epoch_path(folder, 0)
    if done.is_file():
        _check_settings(done, load_checkpoint(done), config)
        logging.info("%s has been read before", done)
        return done
    tokenizer = PreparedData(Path(config.data.folder)).tokenizer(config.model.vocab_size, config.data.token_model)
    text = Text(Path(config.reading.text), tokenizer, config.reading.longest)
    learner = Learner(config, world)
    progress = Progress(batches_in_epoch=updates)
    if newest := newest_checkpoint(folder):
        path, checkpoint = newest
        _check_settings(path, checkpoint, config)
        if (before := checkpoint.progress.batches_in_epoch) != updates:
            raise UserError(
                f"--updates was {before} when {path} was made, and the learning rate follows it; say so again"
            )
        learner.load(checkpoint)
        progress = checkpoint.progress
    logging.info("%d sentences to read; %d of %d updates done", len(text), progress.step, updates)
    while (step := progress.step) < updates:
        drawn = text.draw(config.reading.tokens, stable_seed("reading", config.training.seed, step))
        entropy = _update(learner, drawn, config.optimiser.initial_lr * (1 - step / updates))
        progress.count_update(1)
        if progress.step % config.training.log_interval == 0:
            logging.info("update %d of %d: %.4f nats per token", progress.step, updates, float(entropy))
        if progress.step % config.training.save_interval == 0:
            _save(step_path(folder, progress.step), learner, config, tokenizer, progress)
            remove_old_checkpoints(folder, config.training.keep_last)
    learner.average.restart(learner.model, 0)
    # A run that begins with it has made no update.
    _save(done, learner, config, tokenizer, Progress())
    remove_old_checkpoints(folder, 0)
    return done


def _update(learner: Learner, sentences: Tensor, rate: float) -> Tensor:
    """Move the parameters by sentences [B, U]; gives the cross-entropy [] per token before it."""
    entropy = cross_entropy(learner.model, sentences)
    learner.optimiser.zero_grad(set_to_none=True)
    entropy.backward()
    for group in learner.optimiser.param_groups:
        group["lr"] = rate
    learner.optimiser.step()
    return entropy.detach()


def _check_settings(path: Path, checkpoint: Checkpoint, config: Config) -> None:
    """UserError if a checkpoint is one of other settings."""
    if changed := changed_settings(checkpoint.config, config):
        raise UserError(f"{path} was made with other settings: {'; '.join(changed)}. Give those, or another --exp-dir")


def _save(path: Path, learner: Learner, config: Config, tokenizer: Tokenizer, progress: Progress) -> None:
    """Write a checkpoint, unless parameters are not finite any more."""
    check_parameters(learner.model, progress.step, path.parent)
    Checkpoint(
        config=config,
        progress=progress,
        model=learner.model.state_dict(),
        average=learner.average.state_dict(),
        tokenizer=tokenizer.model,
        training=TrainingState(
            optimiser=learner.optimiser.state_dict(),
            schedule=learner.schedule.state_dict(),
            scaler=learner.scaler.state_dict(),
            watch={},
            batches={},
            pending=[[]],
            sums=[{}],
        ),
    ).save(path)
