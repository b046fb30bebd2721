"""Tiles over lattice points: small enough to live in a cache, so that no [points, J] tensor is ever kept.

Rows are prefixes, sorted by utterance; a row meets every frame of its utterance. A tile is a few rows of one utterance
times a span of its frames. At each of its points the joiner's hidden vector is tanh(frame + prefix), J numbers, which
are computed in a workspace that the next tile overwrites.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor

# Points at a time. On a CPU a tile's hidden vectors should fit into the second-level cache, unless a matrix product
# with all V outputs follows, which wants more rows; on a GPU a tile should fill the device.
PAIR_POINTS = {"cpu": 1024, "cuda": 1 << 16}
FULL_POINTS = {"cpu": 2048, "cuda": 1 << 16}


@dataclass(frozen=True)
class Tile:
    """Rows `rows` times frames `frames` of utterance `utterance`."""

    rows: slice
    utterance: int
    frames: slice

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.stop - self.rows.start, self.frames.stop - self.frames.start


def make_tiles(row_counts: list[int], frame_lengths: list[int], points: int) -> list[Tile]:
    """Cover all rows of all utterances with tiles of at most `points` points, but at least one row.

    Args:
      row_counts: number of rows of each utterance, which follow one another.
      frame_lengths: number of frames of each utterance.
    """
    tiles = []
    start = 0
    for utterance, (rows, frames) in enumerate(zip(row_counts, frame_lengths, strict=True)):
        height = max(1, points // max(frames, 1))
        stop = start + rows
        if frames > 0:
            for first in range(start, stop, height):
                tiles.append(Tile(slice(first, min(first + height, stop)), utterance, slice(0, frames)))
        start = stop
    return tiles


def narrow_tiles(tiles: list[Tile], magnitude: Tensor, tolerance: float) -> list[Tile]:
    """Keep, of each tile, the span of frames outside which gradients are negligible. Waits for the device once.

    Args:
      magnitude: [R, T] sum of the absolute gradients at each point; 0 beyond a row's frames.
      tolerance: all that is left out adds up to at most this share of the largest entry.
    """
    if not tiles:
        return tiles
    points = sum(rows * frames for rows, frames in (tile.shape for tile in tiles))
    # Written so that NaN counts as active: a gradient that is not a number must stay one.
    active = ~(magnitude <= magnitude.amax() * (tolerance / points))
    frames = torch.arange(magnitude.shape[1], device=magnitude.device)
    first = torch.where(active, frames, magnitude.shape[1]).amin(1)
    last = torch.where(active, frames, -1).amax(1)
    firsts, lasts = torch.stack([first, last]).tolist()
    narrowed = []
    for tile in tiles:
        start, stop = min(firsts[tile.rows]), max(lasts[tile.rows]) + 1
        if start < stop:
            narrowed.append(Tile(tile.rows, tile.utterance, slice(start, stop)))
    return narrowed


class Workspace:
    """One buffer per purpose, reused by all tiles: fresh large tensors would cost more than the arithmetic."""

    def __init__(self, tiles: list[Tile], like: Tensor):
        self._points = max((rows * frames for rows, frames in (tile.shape for tile in tiles)), default=0)
        self._like = like
        self._buffers: dict[str, Tensor] = {}

    def take(self, name: str, *shape: int) -> Tensor:
        """An uninitialised tensor [rows, frames, width] that shares memory with all others of this name."""
        rows, frames, width = shape
        if name not in self._buffers:
            self._buffers[name] = self._like.new_empty(self._points * width)
        return self._buffers[name][: rows * frames * width].view(shape)


def hidden(tile: Tile, frames: Tensor, prefixes: Tensor, workspace: Workspace) -> Tensor:
    """The joiner's hidden vectors of a tile: tanh(frame + prefix).

    Args:
      frames: [B, T, J] projected encoder frames; prefixes: [R, J] projected predictor outputs.

    Returns:
      [rows, frames, J], valid until the next call with the same workspace.
    """
    result = workspace.take("hidden", *tile.shape, frames.shape[2])
    torch.add(frames[tile.utterance, None, tile.frames], prefixes[tile.rows, None], out=result)
    return result.tanh_()


def add_hidden_gradient(
    tile: Tile, hidden_grad: Tensor, hidden_vectors: Tensor, frame_grads: Tensor, prefix_grads: Tensor
) -> None:
    """Backpropagate through tanh(frame + prefix); overwrites both tile tensors.

    Args:
      hidden_grad, hidden_vectors: [rows, frames, J].
      frame_grads: [B, T, J] and prefix_grads: [R, J], added to.
    """
    squares = hidden_vectors.mul_(hidden_vectors)
    hidden_grad.addcmul_(hidden_grad, squares, value=-1)
    frame_grads[tile.utterance, tile.frames] += hidden_grad.sum(0)
    prefix_grads[tile.rows] += hidden_grad.sum(1)


def without_autocast(like: Tensor) -> AbstractContextManager:
    """Lattice weights are float32 at least: autocast would make its matrix products half precision."""
    return torch.autocast(like.device.type, enabled=False)
