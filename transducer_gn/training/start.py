"""How a run starts: afresh, where it was stopped, or as a branch of another run."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from transducer_gn.common.errors import UserError
from transducer_gn.config import Config, changed_settings
from transducer_gn.data.batches import Batches, Inputs, ResumableBatches
from transducer_gn.data.prepared import PreparedData
from transducer_gn.data.shar import ShardedBatches
from transducer_gn.data.tokenizer import Tokenizer
from transducer_gn.lattice.recursion import resolve_backend
from transducer_gn.recognition.checkpoint import Checkpoint, Progress, load_checkpoint, newest_checkpoint
from transducer_gn.recognition.front_end import check_features, front_end_of
from transducer_gn.recognition.stored_front_end import load_front_end
from transducer_gn.search.competitors import Competitors
from transducer_gn.training.distributed import World
from transducer_gn.training.expected_errors import ErrorCounter
from transducer_gn.training.learner import Learner
from transducer_gn.training.objective import SUMS
from transducer_gn.training.planning import Planner
from transducer_gn.training.reading import build_reader
from transducer_gn.training.watch import Watch


@dataclass
class RunState:
    """A run between two updates: all that a checkpoint must hold.

    Attributes:
        progress: where training is
        learner: the parameters and what moves them
        batches: this rank's training batches
        planner: decides about batches before their turn
        watch: counts what goes wrong
        sums: of metrics since the last line of the log, on this rank
        tokenizer: between texts and tokens
        branched_from: checkpoint of another run that this one begins with, now; None for any other start
    """

    progress: Progress
    learner: Learner
    batches: ResumableBatches
    planner: Planner
    watch: Watch
    sums: dict[str, Tensor]
    tokenizer: Tokenizer
    branched_from: Path | None = None


def start_run(config: Config, folder: Path, world: World, branch_from: Path | None, allow_changed: bool) -> RunState:
    """The state of the newest checkpoint of the folder, or else of the one to branch from, or else a new one.

    Args:
        branch_from: an epoch-N.pt of another run
        allow_changed: go on from a checkpoint of this folder even if it was made with other settings
    """
    data = PreparedData(Path(config.data.folder))
    tokenizer = data.tokenizer(config.model.vocab_size, config.data.token_model)
    batches = training_batches(config, data, tokenizer, world)
    errors, reader = ErrorCounter(config.mwer, tokenizer.decode), build_reader(config.reading, tokenizer)
    learner = Learner(config, world, errors, reader)
    load_front_end(learner.model, data)
    state = RunState(
        progress=Progress(),
        learner=learner,
        batches=batches,
        planner=Planner(learner.training_pass, config, world),
        watch=Watch(config.training, config.competitors),
        sums=dict.fromkeys(SUMS, torch.zeros((), dtype=torch.float64, device=world.device)),
        tokenizer=tokenizer,
    )
    newest = newest_checkpoint(folder)
    if newest is not None:
        _resume(state, *newest, config, world, allow_changed)
    elif branch_from is not None:
        if config.training.encoder_from or config.training.predictor_from:
            raise UserError(
                "--branch-from takes over a whole system; leave out training.encoder_from and training.predictor_from"
            )
        _branch(state, branch_from, config)
    else:
        begin_with_parts(state, config)
    if not config.model.front_end.is_trained:
        check_features(data, front_end_of(learner.model))
    return state


def _resume(
    state: RunState, path: Path, checkpoint: Checkpoint, config: Config, world: World, allow_changed: bool
) -> None:
    """Go on as if the run had never stopped."""
    changed = changed_settings(checkpoint.config, config)
    if changed and not allow_changed:
        raise UserError(
            f"{path} was made with other settings: {'; '.join(changed)}. Give those, or use another --exp-dir, or "
            "say --allow-changed"
        )
    training = checkpoint.training
    if not allow_changed:
        _check_token_model(path, checkpoint, state.tokenizer)
    if checkpoint.progress.batch > 0:
        state.batches.check_identity(training.batches)
    state.progress = checkpoint.progress
    state.learner.load(checkpoint)
    state.watch.load_state_dict(training.watch)
    # Between epochs the number of ranks may change; a new one has nothing pending and goes on with another's sums.
    rank = min(world.rank, len(training.pending) - 1)
    pending = [_pending_competitors(each, world.device) for each in training.pending[rank]]
    state.planner = Planner(state.learner.training_pass, config, world, pending)
    # Checkpoints of earlier versions lack the sums of what is new.
    state.sums |= {name: torch.full_like(state.sums[name], value) for name, value in training.sums[rank].items()}
    logging.info("resuming from %s: epoch %d, update %d", path, state.progress.epoch + 1, state.progress.step)


def _pending_competitors(stored: Mapping[str, Tensor], device: torch.device) -> Competitors:
    """Competitors as `Bookkeeper.save` stores them; earlier versions did not note whether references were found."""
    found = stored.get("found", torch.zeros(len(stored["tokens"]), dtype=torch.bool))
    return Competitors(stored["tokens"].to(device), stored["lengths"].to(device), found.to(device))


def _branch(state: RunState, path: Path, config: Config) -> None:
    """Take over parameters, optimiser, learning rate, counters and averages, at the end of an epoch."""
    checkpoint = load_checkpoint(path)
    before = checkpoint.config.model
    # A front end that was frozen so far may be trained along from here on, or one that was trained along be frozen.
    before = replace(before, front_end=replace(before.front_end, freeze=config.model.front_end.freeze))
    changed = changed_settings(before, config.model, "model.")
    if changed:
        raise UserError(f"--branch-from {path} is a model of other settings: {'; '.join(changed)}")
    if checkpoint.progress.batch != 0:
        raise UserError(f"--branch-from {path} lies within an epoch; branch from an epoch-N.pt")
    _check_token_model(path, checkpoint, state.tokenizer)
    state.branched_from = path
    state.progress = checkpoint.progress
    state.progress.branch()
    state.learner.load(checkpoint)
    logging.info("branching from %s after epoch %d, update %d", path, state.progress.epoch, state.progress.step)


def begin_with_parts(state: RunState, config: Config) -> None:
    """Take over trained parts of other systems for a new run; counters, optimiser and averages begin anew."""
    model = state.learner.model
    parts: list[tuple[str, str | None, tuple[str, ...]]] = [
        ("training.encoder_from", config.training.encoder_from, ("encoder", "front_end")),
        ("training.predictor_from", config.training.predictor_from, ("predictor", "joiner")),
    ]
    for flag, name, modules in parts:
        if name is None:
            continue
        path = Path(name)
        checkpoint = load_checkpoint(path)
        if "predictor" in modules:
            _check_token_model(path, checkpoint, state.tokenizer)
        taken = {key: value for key, value in checkpoint.model.items() if key.split(".")[0] in modules}
        own = {key: value for key, value in model.state_dict().items() if key.split(".")[0] in modules}
        other = sorted(key for key in own.keys() | taken.keys() if _shape(own, key) != _shape(taken, key))
        # The joiner stands between both; how it sees an encoder of another width is learnt anew.
        other = [key for key in other if not key.startswith("joiner.encoder_projection.")]
        if other:
            raise UserError(f"{flag} {path} is of another size than this model: {other[0]}; give it the same settings")
        usable = {key: value for key, value in taken.items() if _shape(own, key) == _shape(taken, key)}
        model.load_state_dict(usable, strict=False)
        logging.info("beginning with the %s of %s", " and the ".join(modules).replace("_", " "), path)
    state.learner.average.restart(model, 0)


def _shape(tensors: Mapping[str, Tensor], name: str) -> torch.Size | None:
    return tensors[name].shape if name in tensors else None


def _check_token_model(path: Path, checkpoint: Checkpoint, tokenizer: Tokenizer) -> None:
    """UserError unless a checkpoint's tokens mean what those of the data mean."""
    before = Tokenizer(checkpoint.tokenizer)
    if before.entries == tokenizer.entries:
        return
    pairs = enumerate(zip(before.entries, tokenizer.entries, strict=False))
    found = next(
        (f"token {number} was {old} and is {new}" for number, (old, new) in pairs if old != new), "one is longer"
    )
    raise UserError(
        f"{path} was trained with another token model than that of the data: {found}; use the data that it was "
        "trained on, or prepare other data with its token model"
    )


def count_batches(state: RunState, world: World) -> int:
    """Batches of the current epoch, as many on every rank; UserError if a rank has none."""
    progress = state.progress
    if progress.batches_in_epoch == 0:
        # Ranks may differ by a batch; none may wait for a partner that has no more.
        progress.batches_in_epoch = world.smallest(state.batches.count(progress.epoch))
    if progress.batches_in_epoch == 0:
        raise UserError("a rank has no batch; use fewer ranks or lower data.batches.max_duration")
    return progress.batches_in_epoch


def recursion_backend(config: Config, world: World) -> str:
    """The backend of the recursion on this machine; UserError if it is not there."""
    try:
        return resolve_backend(config.objective.backend, world.device)
    except ValueError as error:
        raise UserError(f"objective.backend: {error}") from error


def training_batches(config: Config, data: PreparedData, tokenizer: Tokenizer, world: World) -> ResumableBatches:
    """This rank's training batches."""
    settings, rank, size = config.data.batches, world.rank, world.size
    noise = data.noise_cuts() if settings.noise.enabled else None
    inputs = Inputs.of(config.model.front_end, noise)
    if config.data.shar:
        folder = data.folder / "shar" / "train"
        return ShardedBatches(folder, tokenizer, settings, inputs=inputs, rank=rank, world_size=size)
    cuts = data.training_utterances()
    return Batches(cuts, tokenizer, settings, training=True, inputs=inputs, rank=rank, world_size=size)
