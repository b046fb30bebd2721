"""Trained systems: a model taken from the checkpoints of an experiment folder, ready to recognise."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from transducer_gn.common.errors import UserError, require
from transducer_gn.config import Config, RecognitionConfig, SystemConfig
from transducer_gn.data.tokenizer import Tokenizer
from transducer_gn.model.chunk import FULL_CONTEXT, Chunk, evaluation_chunk
from transducer_gn.model.transducer import Transducer, build_model
from transducer_gn.recognition.averaging import average_between
from transducer_gn.recognition.checkpoint import Checkpoint, Progress, epoch_path, load_checkpoint, step_path


@dataclass(frozen=True)
class System:
    """A model that recognises.

    Attributes:
      name: of the parameters, such as "epoch-30-avg-5".
      model: in evaluation mode.
      alpha: interpolation weight that it was trained with at this point, or that was asked for.
      fingerprint: of the parameters and alpha, by which results of other parameters are told apart.
    """

    name: str
    model: Transducer
    config: Config
    tokenizer: Tokenizer
    alpha: float
    fingerprint: str

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def chunk(self, settings: RecognitionConfig) -> Chunk:
        """What a frame sees."""
        own = evaluation_chunk(self.config.model.streaming)
        if settings.streaming == "lookahead":
            return FULL_CONTEXT
        size = settings.chunk if settings.chunk is not None else own.size
        left = settings.left_context if settings.left_context is not None else own.left
        require(
            size is None or self.config.model.encoder.causal, "--chunk", "this system looks ahead and has no chunks"
        )
        return FULL_CONTEXT if size is None else Chunk(size, left)

    def tokens_per_frame(self, settings: RecognitionConfig) -> int:
        """Most tokens at one frame."""
        return settings.max_tokens_per_frame or self.config.searched_tokens_per_frame()

    def describe(self, settings: RecognitionConfig) -> str:
        """A name for the files of what it recognises."""
        chunk = self.chunk(settings)
        how = "lookahead" if chunk.size is None else f"streaming-chunk-size-{chunk.size}-left-context-{chunk.left}"
        kind = "chunk-by-chunk-" if settings.streaming == "chunks" else ""
        search = f"beam-{settings.beam}" if settings.method == "beam" else "greedy"
        return f"{self.name}-{kind}{how}-{search}"


def load_system(folder: Path, choice: SystemConfig = SystemConfig(), device: torch.device | None = None) -> System:
    """Load the chosen parameters of an experiment folder; UserError if they are not there."""
    name, content = read_parameters(folder, choice)
    return build_system(name, content, folder, choice.alpha, device)


def load_checkpoint_system(path: Path, average: bool = False, alpha: float | None = None) -> System:
    """Load a checkpoint by its file; `average` takes the running average of the parameters instead of the last ones."""
    checkpoint = load_checkpoint(path)
    if average:
        checkpoint = replace(checkpoint, model=checkpoint.model | average_between(None, checkpoint.average))
    return build_system(path.stem, checkpoint, path.parent, alpha)


def build_system(
    name: str, checkpoint: Checkpoint, folder: Path, alpha: float | None, device: torch.device | None = None
) -> System:
    """The system that a checkpoint's content describes; on the GPU if there is one, unless told where."""
    config = checkpoint.config
    alpha = alpha if alpha is not None else trained_alpha(config, checkpoint.progress, folder)
    model = build_model(config.model)
    model.load_state_dict(checkpoint.model)
    model.eval().requires_grad_(False)
    device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = Tokenizer(checkpoint.tokenizer)
    return System(name, model.to(device), config, tokenizer, alpha, fingerprint(checkpoint.model, alpha))


def read_parameters(folder: Path, choice: SystemConfig) -> tuple[str, Checkpoint]:
    """A name, and the checkpoint with its parameters replaced by the average if one was asked for."""
    if not folder.is_dir():
        raise UserError(f"there is no experiment folder {folder}")
    if choice.iter is not None:
        path = step_path(folder, choice.iter)
        return path.stem, load_checkpoint(path)
    epoch = choice.epoch if choice.epoch is not None else best_epoch(folder)
    checkpoint = load_checkpoint(epoch_path(folder, epoch))
    if choice.avg == 0:
        return f"epoch-{epoch}", checkpoint
    require(choice.avg <= epoch, "--avg", f"there are only {epoch} epochs up to epoch {epoch}, not {choice.avg}")
    earlier = None
    # From the very beginning there is nothing to take away, unless the average began anew when alpha had moved.
    if choice.avg < epoch or checkpoint.average["start"] > 0:
        earlier = load_checkpoint(epoch_path(folder, epoch - choice.avg)).average
    model = checkpoint.model | average_between(earlier, checkpoint.average)
    return f"epoch-{epoch}-avg-{choice.avg}", replace(checkpoint, model=model)


def best_epoch(folder: Path) -> int:
    """The epoch of a run with the lowest error rate on the dev set."""
    path = folder / "best.json"
    try:
        best = json.loads(path.read_text(encoding="utf-8"))["epoch"]
    except FileNotFoundError:
        raise UserError(f"{folder} has no finished epoch yet (no best.json); train it, or choose --iter") from None
    except (json.JSONDecodeError, KeyError, TypeError):
        raise UserError(f"{path} cannot be read; choose --epoch") from None
    if best < 1:
        raise UserError(f"{folder}: no epoch has a word error rate on a dev set; choose --epoch")
    return best


def trained_alpha(config: Config, progress: Progress, folder: Path) -> float:
    """Alpha at a checkpoint; UserError if it was changing within the epoch that the checkpoint lies in."""
    epochs = progress.epoch - progress.branch_epoch
    alpha = config.normalisation.alpha_at(epochs)
    later = config.normalisation.alpha_at(epochs + 1)
    if progress.batch > 0 and later != alpha:
        raise UserError(
            f"alpha was on its way from {alpha:g} to {later:g} at this checkpoint of {folder}; say which one with --alpha"
        )
    return alpha


def fingerprint(parameters: Mapping[str, Tensor], alpha: float) -> str:
    """A digest of the values."""
    digest = hashlib.sha256(f"{alpha}".encode())
    for name in sorted(parameters):
        digest.update(name.encode())
        digest.update(parameters[name].contiguous().cpu().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:16]
