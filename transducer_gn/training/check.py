"""A look at a run before it begins: what it would be on this machine, whether it fits, and how long it would take."""

import resource
import shutil
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch

from transducer_gn.common.durations import rough_duration
from transducer_gn.config import Config
from transducer_gn.training.clock import Clock
from transducer_gn.training.distributed import World
from transducer_gn.training.schedule import SchedulePoint
from transducer_gn.training.start import RunState, count_batches, recursion_backend, start_run

# Updates that are timed, after one that is not: the first one allocates.
TIMED = 3
GIGA = 1e9


def check_run(config: Config, folder: Path, world: World, branch_from: Path | None, allow_changed: bool) -> None:
    """Print what training would do, after trying its largest batches and a few updates; writes nothing.

    Args:
        config: all settings
        folder: of the experiment, which need not exist
        world: this process among those that would train together
        branch_from: an epoch-N.pt of another run
        allow_changed: resume even if settings that matter have changed
    """
    state = start_run(config, folder, world, branch_from, allow_changed)
    for name, value in findings(config, folder, world, state):
        if world.is_first:
            print(f"{name:12}{value}", flush=True)


def findings(config: Config, folder: Path, world: World, state: RunState) -> Iterator[tuple[str, str]]:
    """Names and sentences, one after another as they are found; all ranks must take all of them."""
    progress, tokenizer = state.progress, state.tokenizer
    yield "device", f"{world.size} process{'es' if world.size > 1 else ''} on {describe_device(world.device)}"
    yield "precision", f"{config.training.precision} in the encoder, float32 in lattices"
    yield "recursion", recursion_backend(config, world)
    parameters = sum(parameter.numel() for parameter in state.learner.model.parameters())
    yield "parameters", f"{parameters / 1e6:.2f} million"
    yield (
        "tokens",
        f"{config.data.token_model} model of {tokenizer.vocab_size} pieces, checksum {tokenizer.fingerprint}",
    )
    yield "noise", "mixed in" if config.data.batches.noise.enabled else "none"
    yield "start", f"after epoch {progress.epoch}, update {progress.step}" if progress.step else "from the beginning"
    batches = count_batches(state, world)
    yield "batches", f"{batches:,} per epoch and rank, of up to {config.data.batches.max_duration:g} s"
    scan_memory(config, state)
    yield "memory", f"{describe_peak(world.device)} at most, in the largest batches{describe_competitors(config)}"
    for alpha in dict.fromkeys((1.0, config.normalisation.alpha)):
        seconds = seconds_per_update(config, state, world, alpha)
        updates = -(-batches // config.training.accumulate)
        epoch = rough_duration(seconds * updates)
        yield "time", f"{seconds:.2f} s per update at alpha {alpha:g}: {epoch} per epoch, validation not counted"
    yield "disk", describe_disk(config, folder, parameters)


def scan_memory(config: Config, state: RunState) -> None:
    """Try the largest batches at the end of the schedule, where an update needs most."""
    point = SchedulePoint(config.normalisation.alpha, config.normalisation.regulariser, mwer=config.mwer.weight)
    for batch in state.batches.largest(state.progress.epoch):
        state.learner.try_out(batch, point)


def seconds_per_update(config: Config, state: RunState, world: World, alpha: float) -> float:
    """Seconds that an update takes, the loading of its batches and the search for competitors included.

    Moves the parameters: nobody may train with the state afterwards.
    """
    point = SchedulePoint(alpha, config.normalisation.regulariser, mwer=config.mwer.weight)
    ahead = config.competitors.lookahead if point.needs_competitors else 0
    count = min(max(1 + TIMED, ahead) * config.training.accumulate, state.progress.batches_in_epoch)
    state.learner.training_pass.train()
    state.planner.begin(islice(state.batches.starting_at(state.progress.epoch), count), state.progress.epoch, 0)
    times = [time.perf_counter()]
    while plans := state.planner.next_plans(config.training.accumulate, alpha):
        state.learner.update(plans, point, 1.0, Clock(world.device))
        times.append(time.perf_counter())
    # A search ahead of several updates belongs to all of them.
    first = 0 if ahead or len(times) == 2 else 1
    return (times[-1] - times[first]) / (len(times) - 1 - first)


def describe_device(device: torch.device) -> str:
    """Its name, what it has, and the build of torch that uses it."""
    if device.type != "cuda":
        return f"the processor, {torch.get_num_threads()} threads each; torch {torch.__version__}"
    properties = torch.cuda.get_device_properties(device)
    return f"{properties.name} of {properties.total_memory / GIGA:.1f} GB each; torch {torch.__version__}"


def describe_peak(device: torch.device) -> str:
    """The most memory that this process has needed so far."""
    if device.type == "cuda":
        return f"{torch.cuda.max_memory_allocated(device) / GIGA:.1f} GB of the GPU"
    return f"{1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / GIGA:.1f} GB of this process"


def describe_competitors(config: Config) -> str:
    """What was tried besides the batches themselves."""
    if (config.normalisation.alpha == 1 and not config.mwer.is_used) or config.normalisation.exact:
        return ""
    settings = config.competitors
    return f" with {settings.count} competitors of {settings.max_length:g} times their reference's tokens and 10 more"


def describe_disk(config: Config, folder: Path, parameters: int) -> str:
    """What checkpoints will take: parameters, their average and two moments, in float32."""
    size = 4 * 4 * parameters / GIGA
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing).free / GIGA
    kept = config.training.keep_epochs
    epochs = config.training.epochs if kept is None else min(kept + 1, config.training.epochs)
    most = size * (epochs + len(config.training.keep_always) + config.training.keep_last)
    return f"{size:.2f} GB per checkpoint, {most:.1f} GB for those that are kept; {free:.0f} GB are free"
