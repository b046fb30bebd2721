"""Checkpoints: whole or not there, and read back before an older one goes.

A checkpoint is one file with everything that training needs to go on as if it had never stopped. It holds tensors,
numbers, strings and containers of these, so that reading it runs no code.
"""

import logging
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from transducer_gn.common.errors import UserError
from transducer_gn.common.files import replace_when_done

FORMAT = "transducer_gn checkpoint 1"


def step_path(folder: Path, step: int) -> Path:
    """A checkpoint within an epoch, after `step` updates."""
    return folder / f"checkpoint-{step}.pt"


def epoch_path(folder: Path, epoch: int) -> Path:
    """The checkpoint at the end of an epoch, counted from 1."""
    return folder / f"epoch-{epoch}.pt"


def save_checkpoint(path: Path, content: Mapping[str, Any]) -> None:
    """Write a checkpoint, and read it back before it takes its name."""
    with replace_when_done(path) as sibling:
        torch.save({"format": FORMAT, **content}, sibling)
        load_checkpoint(sibling)


def load_checkpoint(path: Path, mmap: bool = False) -> dict[str, Any]:
    """Read a checkpoint; UserError naming the file if it is none.

    Args:
      mmap: leave tensors on disk until they are used: quick, for a look at the rest.
    """
    if not path.is_file():
        raise UserError(f"there is no checkpoint {path}")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, KeyError, OSError) as error:
        raise UserError(
            f"{path} cannot be read as a checkpoint, it may be cut short; delete it or use another"
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UserError(f"{path} is not a checkpoint of this program; delete it or use another")
    return content


def newest_checkpoint(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The valid checkpoint of a folder with the most updates; files that cannot be read are named and passed over."""
    found = []
    for path in folder.glob("*.pt"):
        if re.fullmatch(r"(checkpoint|epoch)-\d+\.pt", path.name):
            try:
                found.append((load_checkpoint(path, mmap=True)["progress"]["step"], path.name, path))
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
    steps = sorted((int(path.stem.split("-")[1]), path) for path in folder.glob("checkpoint-*.pt"))
    for _, path in steps[:-keep]:
        path.unlink()
