"""Chunks: how far attention sees, and how training draws them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from transducer_gn.common.errors import require, require_positive
from transducer_gn.config import StreamingConfig


@dataclass(frozen=True)
class Chunk:
    """A frame sees all of its own chunk of `size` frames and `left` frames before the chunk.

    None for `size` is full context, for `left` all frames before the chunk.
    """

    size: int | None = None
    left: int | None = None

    def __post_init__(self) -> None:
        if self.size is None:
            require(self.left is None, "left context", "only chunks can limit it; full context has none")
            return
        require_positive("chunk", size=self.size)
        require(
            self.left is None or (self.left >= 0 and self.left % self.size == 0),
            "left context",
            f"{self.left} is no multiple of the chunk size {self.size}",
        )


FULL_CONTEXT = Chunk()


def evaluation_chunk(config: StreamingConfig) -> Chunk:
    """The fixed chunk of evaluation and streaming."""
    return FULL_CONTEXT if config.chunk is None else Chunk(config.chunk, config.left_context)


def draw_chunk(config: StreamingConfig, max_frames: int, generator: torch.Generator, multiple: int = 1) -> Chunk:
    """The chunk of one training batch whose longest utterance has `max_frames` encoder frames.

    A number is drawn below `max_frames`. If it is among the largest (`config.full_context_share` of them) it means full
    context; otherwise its remainder gives the chunk size, at most `config.max_chunk`, rounded up to a `multiple` of the
    front end's chunks.
    """
    if not config.dynamic_chunks or max_frames < 2:
        return FULL_CONTEXT
    number = int(torch.randint(1, max_frames, (), generator=generator))
    if number > (1 - config.full_context_share) * max_frames:
        return FULL_CONTEXT
    size = -(-(number % config.max_chunk + 1) // multiple) * multiple
    return Chunk(size, None if config.left_chunks is None else size * config.left_chunks)


def valid_frames(lengths: Tensor, frames: int) -> Tensor:
    """True [B, frames] where a frame lies within its utterance of `lengths` [B] frames."""
    return torch.arange(frames, device=lengths.device) < lengths.unsqueeze(1)


def visible_frames(chunk: Chunk, frames: int, device: torch.device) -> Tensor:
    """True [frames, frames] where the row's frame may see the column's frame."""
    positions = torch.arange(frames, device=device)
    if chunk.size is None:
        return torch.ones(frames, frames, dtype=torch.bool, device=device)
    start = positions // chunk.size * chunk.size
    end = (start + chunk.size).unsqueeze(1)
    first = torch.zeros_like(end) if chunk.left is None else (start - chunk.left).unsqueeze(1)
    return (positions >= first) & (positions < end)
