"""Checkpoints: a trained system on disk, and with it everything that training needs to go on as if it never stopped.

A checkpoint is one file, whole or not there, and read back before an older one goes. It holds tensors, numbers, strings
and containers of these, so that reading it runs no code. Files of format 1, written by the first version of this
program, are read as well.
"""

import json
import logging
import os
import re
from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transducer_gn.common.errors import UserError
from transducer_gn.common.files import replace_when_done, write_text
from transducer_gn.common.json_files import read_json
from transducer_gn.common.run_files import BRANCH
from transducer_gn.common.typed import typed
from transducer_gn.config import Config, config_from
from transducer_gn.recognition.tensor_files import read_tensors, write_tensors

FORMAT = "transducer_gn checkpoint 2"
FORMAT_1 = "transducer_gn checkpoint 1"
ANY_FORMAT = re.compile(r"transducer_gn checkpoint (\d+)")


class NewerFormatError(UserError):
    """A checkpoint was written by a later version of this program."""


@dataclass
class Progress:
    """Where training is: the only record of it.

    Attributes:
        step: updates made
        epoch: whole epochs done
        batch: batches done of the current epoch
        batches_in_epoch: batches of the current epoch, as many on every rank; 0 until they are counted
        branch_epoch: epochs done when this run branched off; its schedule counts from there
        best_epoch: the epoch of this run with the lowest word error rate on the dev set, from 1; 0 for none. Without a
            dev set it is the newest epoch
        best_wer: that error rate, in per cent
        best_alpha: alpha at that epoch. While alpha moves, the newest epoch counts as the best: error rates of
            different objectives are not compared, and what the run is about is the alpha it arrives at
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    batches_in_epoch: int = 0
    branch_epoch: int = 0
    best_epoch: int = 0
    best_wer: float = float("inf")
    best_alpha: float = 1.0

    @property
    def epochs(self) -> Fraction:
        """Epochs done, the share of the current one included."""
        return self.epoch + Fraction(self.batch, max(self.batches_in_epoch, 1))

    @property
    def epochs_since_branch(self) -> Fraction:
        """Epochs done since training branched off, or began."""
        return self.epochs - self.branch_epoch

    def count_update(self, batches: int) -> None:
        """One more update, made of so many batches."""
        self.step += 1
        self.batch += batches

    def end_epoch(self) -> None:
        """Go to the start of the next epoch."""
        self.epoch, self.batch, self.batches_in_epoch = self.epoch + 1, 0, 0

    def branch(self) -> None:
        """Begin a run of its own here, whose epochs are compared with each other only."""
        self.branch_epoch = self.epoch
        self.best_epoch, self.best_wer = 0, float("inf")

    def compare(self, wer: float, alpha: float) -> None:
        """Note the epoch that has just ended as the best if it is; `wer` is NaN where there is no dev set."""
        if not wer >= self.best_wer or alpha != self.best_alpha:
            self.best_epoch, self.best_wer, self.best_alpha = self.epoch, wer, alpha


@dataclass(frozen=True)
class TrainingState:
    """What only training needs.

    Attributes:
        optimiser, schedule, scaler, watch: states as these give and take them
        batches: identity of the data, by which other data is refused
        pending: for each rank, competitors that were searched ahead for batches to come
        sums: for each rank, the sums of metrics since the last line of the log
    """

    optimiser: dict[str, Any]
    schedule: dict[str, Any]
    scaler: dict[str, Any]
    watch: dict[str, Any]
    batches: dict[str, Any]
    pending: list[list[dict[str, Tensor]]]
    sums: list[dict[str, float]]


@dataclass(frozen=True)
class Checkpoint:
    """A system at one moment of its training.

    Attributes:
        config: all settings of the run
        progress: where training was
        model: parameters by name
        average: state of their running average, see `averaging.RunningAverage`
        tokenizer: the token model, serialised
        training: what training needs to go on
    """

    config: Config
    progress: Progress
    model: dict[str, Tensor]
    average: dict[str, Any]
    tokenizer: bytes
    training: TrainingState

    def save(self, path: Path) -> None:
        """Write it, and read it back before it takes its name."""
        content = {
            "format": FORMAT,
            "config": asdict(self.config),
            "progress": asdict(self.progress),
            "model": self.model,
            "average": self.average,
            "tokenizer": torch.frombuffer(bytearray(self.tokenizer), dtype=torch.uint8),
            # Not asdict, which would copy every tensor.
            "training": dict(vars(self.training)),
        }
        with replace_when_done(path) as sibling:
            write_tensors(content, sibling)
            load_checkpoint(sibling)


def load_checkpoint(path: Path, mmap: bool = False) -> Checkpoint:
    """Read a checkpoint; UserError naming the file if it is none.

    Args:
        mmap: leave tensors on disk until they are used, unchecked: quick, for a look at the rest
    """
    if not path.is_file():
        raise UserError(f"there is no checkpoint {path}")
    try:
        content = read_tensors(path, mmap)
    except ValueError as error:
        raise UserError(f"{path} is damaged or no checkpoint: {error}; delete it or use another") from error
    found = content.get("format") if isinstance(content, dict) else None
    if found not in (FORMAT, FORMAT_1):
        if isinstance(found, str) and ANY_FORMAT.fullmatch(found):
            raise NewerFormatError(
                f'{path} is a "{found}", which a later version of this program wrote; this one reads up to "{FORMAT}": '
                "update the program, or use another checkpoint or folder"
            )
        raise UserError(f"{path} is not a checkpoint of this program; delete it or use another")
    try:
        return _checkpoint_from(_from_format_1(content) if found == FORMAT_1 else content)
    except (UserError, LookupError, TypeError, ValueError, AttributeError) as error:
        reason = error if isinstance(error, UserError) else f"its parts are others ({error})"
        raise UserError(f"{path} is of another version of this program: {reason}; use another checkpoint") from error


def _checkpoint_from(content: Mapping[str, Any]) -> Checkpoint:
    """The typed content of a file of the current format."""
    config = deepcopy(content["config"])
    # Files from before front ends had settings of their own repeat the number of filter banks.
    config["model"]["encoder"].pop("feature_dim", None)
    return Checkpoint(
        config=config_from(config),
        progress=_progress_from(content["progress"]),
        model=typed(dict[str, Tensor], dict(content["model"]), "model"),
        average=_average_from(content["average"]),
        tokenizer=bytes(typed(Tensor, content["tokenizer"], "tokenizer").numpy()),
        training=typed(TrainingState, content["training"], "training"),
    )


def _progress_from(content: Any) -> Progress:
    progress: Progress = typed(Progress, content, "progress")
    if any(number < 0 for number in vars(progress).values()):
        raise ValueError("progress cannot be less than nothing")
    return progress


def _average_from(content: Any) -> dict[str, Any]:
    state = typed(dict[str, Any], content, "average")
    numbers = {name: typed(int, state[name], f"average.{name}") for name in ("start", "count")}
    return numbers | {"parameters": typed(dict[str, Tensor], dict(state["parameters"]), "average.parameters")}


# Names of settings in format 1 whose meaning they did not say.
RENAMED = {
    "optimiser.lr_batches": "lr_updates",
    "optimiser.warmup_batches": "warmup_updates",
    "data.batches.max_tokens_per_frame": "max_token_density",
}


def _from_format_1(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a file of format 1 as the current format has it."""
    config = content["config"]
    for name, new in RENAMED.items():
        *sections, old = name.split(".")
        section = config
        for part in sections:
            section = section[part]
        section[new] = section.pop(old)
    identity = content["batches"]["identity"]
    identity["max_token_density"] = identity.pop("max_tokens_per_frame")
    schedule = {"updates": content["schedule"]["batches"], "epochs": content["schedule"]["epochs"]}
    training = {name: content[name] for name in ("optimiser", "scaler", "watch", "pending", "sums")}
    return {
        **{name: content[name] for name in ("config", "progress", "model", "average", "tokenizer")},
        "training": training | {"schedule": schedule, "batches": identity},
    }


def step_path(folder: Path, step: int) -> Path:
    """A checkpoint within an epoch, after `step` updates."""
    return folder / f"checkpoint-{step}.pt"


def epoch_path(folder: Path, epoch: int) -> Path:
    """The checkpoint at the end of an epoch, counted from 1."""
    return folder / f"epoch-{epoch}.pt"


def inherited_epoch_path(folder: Path, epoch: int, seen: tuple[Path, ...] = ()) -> Path:
    """The same, of the run in this folder or of the one that it branched off from after this epoch or a later one.

    Args:
        seen: folders of runs that branched off from this one
    """
    path = epoch_path(folder, epoch)
    branch = folder / BRANCH
    if path.exists() or not branch.is_file():
        return path
    try:
        parent = folder / read_json(branch, dict[str, str])["from"]
        own = folder.resolve()
        if parent.parent.resolve() in (own, *seen):
            raise ValueError("the run stands on itself")
        parent.exists()  # raises OSError if no file can have such a name
    except (ValueError, KeyError, OSError, RuntimeError):
        raise UserError(f"{branch} cannot be read; average over fewer epochs") from None
    return inherited_epoch_path(parent.parent, epoch, (*seen, own))


def note_branch(folder: Path, parent: Path) -> None:
    """Write down where a run branched off, for averages that reach back beyond."""
    path = os.path.relpath(parent.resolve(), folder.resolve())
    write_text(folder / BRANCH, json.dumps({"from": path}) + "\n")


def checkpoint_files(folder: Path) -> list[Path]:
    """The files in a folder that have names of checkpoints."""
    return [path for path in folder.glob("*.pt") if re.fullmatch(r"(checkpoint|epoch)-\d+\.pt", path.name)]


def newest_checkpoint(folder: Path) -> tuple[Path, Checkpoint] | None:
    """The valid checkpoint of a folder with the most updates; files that cannot be read are named and passed over.

    Those of a later version of the program are not: going on from an older one would write over them.
    """
    found = []
    for path in checkpoint_files(folder):
        try:
            found.append((load_checkpoint(path, mmap=True).progress.step, path.name, path))
        except NewerFormatError:
            raise
        except UserError as error:
            logging.warning("%s; trying the one before", error)
    for _, _, path in sorted(found, reverse=True):
        try:
            return path, load_checkpoint(path)
        except UserError as error:
            logging.warning("%s; trying the one before", error)
    return None


def remove_old_checkpoints(folder: Path, keep: int) -> None:
    """Remove checkpoints within epochs but the `keep` newest; those at the end of epochs stay."""
    _remove_all_but(folder, "checkpoint", keep, ())


def remove_old_epochs(folder: Path, keep: int, also: Collection[int]) -> None:
    """Remove checkpoints at the end of epochs but the `keep` newest and those of the epochs in `also`."""
    _remove_all_but(folder, "epoch", keep, also)


def _remove_all_but(folder: Path, kind: str, keep: int, also: Collection[int]) -> None:
    numbers = sorted(int(path.stem.split("-")[1]) for path in checkpoint_files(folder) if path.name.startswith(kind))
    for number in numbers[: max(0, len(numbers) - keep)]:
        if number not in also:
            (folder / f"{kind}-{number}.pt").unlink()
