"""A predictor that reads before it hears: training on text alone, for a run to begin with."""

import logging
from pathlib import Path

import torch

from transducer_gn.common.errors import UserError
from transducer_gn.common.seeds import stable_seed
from transducer_gn.config import Config, changed_settings
from transducer_gn.data.prepared import PreparedData
from transducer_gn.data.text import Sentences, Text
from transducer_gn.data.tokenizer import Tokenizer
from transducer_gn.recognition.checkpoint import (
    Checkpoint,
    Progress,
    TrainingState,
    epoch_path,
    newest_checkpoint,
    remove_old_checkpoints,
    step_path,
)
from transducer_gn.training.distributed import World
from transducer_gn.training.learner import Learner
from transducer_gn.training.reading import reading_loss


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
    done = epoch_path(folder, 0)
    if done.is_file():
        logging.info("%s has been read before", done)
        return done
    if config.reading.text is None:
        raise UserError("reading.text: which text is to be read? Give a file with a sentence per line")
    tokenizer = PreparedData(Path(config.data.folder)).tokenizer(config.model.vocab_size, config.data.token_model)
    text = Text(Path(config.reading.text), tokenizer, config.reading.longest)
    learner = Learner(config, world)
    first = _resume(learner, config, folder)
    logging.info("%d sentences to read; %d of %d updates done", len(text), first, updates)
    for step in range(first, updates):
        drawn = text.draw(config.reading.tokens, stable_seed("reading", config.training.seed, step))
        entropy = _update(learner, drawn, config.optimiser.initial_lr * (1 - step / updates), world)
        if (step + 1) % config.training.log_interval == 0:
            logging.info("update %d of %d: %.4f nats per token", step + 1, updates, float(entropy))
        if (step + 1) % config.training.save_interval == 0:
            _checkpoint(learner, config, tokenizer, step + 1).save(step_path(folder, step + 1))
            remove_old_checkpoints(folder, config.training.keep_last)
    learner.average.restart(learner.model, 0)
    _checkpoint(learner, config, tokenizer, 0).save(done)
    remove_old_checkpoints(folder, 0)
    return done


def _update(learner: Learner, drawn: Sentences, rate: float, world: World) -> torch.Tensor:
    """Move the parameters by one draw of sentences; gives the cross-entropy [] per token before it."""
    sentences = Sentences(drawn.tokens.to(world.device), drawn.lengths.to(world.device))
    entropy = reading_loss(learner.model, sentences) / sentences.lengths.sum()
    learner.optimiser.zero_grad(set_to_none=True)
    entropy.backward()
    for group in learner.optimiser.param_groups:
        group["lr"] = rate
    learner.optimiser.step()
    return entropy.detach()


def _resume(learner: Learner, config: Config, folder: Path) -> int:
    """Take over the newest checkpoint of the folder, if there is one; gives the number of updates done."""
    newest = newest_checkpoint(folder)
    if newest is None:
        return 0
    path, checkpoint = newest
    if changed := changed_settings(checkpoint.config, config):
        raise UserError(f"{path} was made with other settings: {'; '.join(changed)}. Give those, or another --exp-dir")
    learner.load(checkpoint)
    return checkpoint.progress.step


def _checkpoint(learner: Learner, config: Config, tokenizer: Tokenizer, step: int) -> Checkpoint:
    """What is known after so many updates; a run that begins with it has made none."""
    return Checkpoint(
        config=config,
        progress=Progress(step=step),
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
    )
