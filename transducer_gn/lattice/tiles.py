"""Tiles over lattice points: small enough to live in a cache, so that no [points, J] tensor is ever kept.

Rows are prefixes, sorted by utterance; a row meets every frame of its utterance. A tile is a few rows times a span of
frames; its hidden vectors are computed in a workspace that the next tile overwrites. On a CPU all rows of a tile belong
to one utterance, whose frames they share. On a GPU, where every tile costs its launches however small it is, rows of
several utterances fill a tile together, and each row gets a copy of its own frames; unless utterances have so many rows
that they fill tiles by themselves.
"""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from transducer_gn.lattice.arcs import Rows
from transducer_gn.lattice.joint import hidden_vectors, to_sums_gradient

# Points at a time. On a CPU a tile's hidden vectors should fit into the second-level cache, unless a matrix product
# with all V outputs follows, which wants more rows; on a GPU a tile should fill the device, and yet be so small
# that all of its rows are active at similar times.
PAIR_POINTS = {"cpu": 1024, "cuda": 1 << 14}
FULL_POINTS = {"cpu": 2048, "cuda": 1 << 16}

# Whether a tile may hold rows of several utterances.
ACROSS_UTTERANCES = {"cpu": False, "cuda": True}

# Tiles of one utterance each are better, since they need no copies of frames, as long as there are at most so many
# times as many of them.
MORE_TILES = 1.5


@dataclass(frozen=True)
class Tile(ABC):
    """Some rows times a span of frames.

    Attributes:
        rows: of all rows of the batch
        frames: of the rows' utterances
    """

    rows: slice
    frames: slice

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and of frames."""
        return self.rows.stop - self.rows.start, self.frames.stop - self.frames.start

    @abstractmethod
    def own_frames(self, frames: Tensor, out: Tensor) -> Tensor:
        """The frames of each row: of [B, T, J], [rows or 1, frames, J]; `out` [rows, frames, J] may be written to."""

    @abstractmethod
    def add_to_frames(self, grad: Tensor, frame_grads: Tensor) -> None:
        """Add the gradient [rows, frames, J] of each row's frames to that of all frames [B, T, J]."""


@dataclass(frozen=True)
class UtteranceTile(Tile):
    """Rows of one utterance.

    Attributes:
        utterance: its number
    """

    utterance: int

    def own_frames(self, frames: Tensor, out: Tensor) -> Tensor:
        """A view [1, frames, J]: all rows share them."""
        return frames[self.utterance, None, self.frames]

    def add_to_frames(self, grad: Tensor, frame_grads: Tensor) -> None:
        """Add the sum over the rows to the utterance's frames."""
        frame_grads[self.utterance, self.frames] += grad.sum(0)


@dataclass(frozen=True)
class SharedTile(Tile):
    """Rows of several utterances; its frames may reach beyond the end of the shorter ones.

    Attributes:
        utterances: [rows] the utterance of each row
    """

    utterances: Tensor

    def own_frames(self, frames: Tensor, out: Tensor) -> Tensor:
        """A copy [rows, frames, J] in `out`: each row has those of its utterance."""
        return torch.index_select(frames[:, self.frames], 0, self.utterances, out=out)

    def add_to_frames(self, grad: Tensor, frame_grads: Tensor) -> None:
        """Add each row to its utterance's frames."""
        frame_grads[:, self.frames].index_add_(0, self.utterances, grad)


def make_tiles(rows: Rows, frame_counts: list[int], points: int, across: bool) -> list[Tile]:
    """Cover all rows of all utterances with tiles of at most `points` points, but at least one row.

    Args:
        rows: R rows of B utterances
        frame_counts: number of frames of each of the B utterances
        points: most points of a tile
        across: whether a tile may hold rows of several utterances
    """
    tiles = tiles_by_utterance(rows, frame_counts, points)
    if across:
        shared = shared_tiles(rows, frame_counts, points)
        tiles = tiles if len(tiles) <= MORE_TILES * len(shared) else shared
    return [tile for tile in tiles if tile.frames.stop > 0]


def tiles_by_utterance(rows: Rows, frame_counts: list[int], points: int) -> list[Tile]:
    """Tiles whose rows all belong to one utterance; for the arguments see `make_tiles`."""
    tiles: list[Tile] = []
    start = 0
    for utterance, (count, frames) in enumerate(zip(rows.counts, frame_counts, strict=True)):
        height = max(1, points // max(frames, 1))
        stop = start + count
        spans = (slice(first, min(first + height, stop)) for first in range(start, stop, height))
        tiles += [UtteranceTile(span, slice(0, frames), utterance) for span in spans]
        start = stop
    return tiles


def shared_tiles(rows: Rows, frame_counts: list[int], points: int) -> list[Tile]:
    """Tiles that are filled with the rows of one utterance after another; for the arguments see `make_tiles`."""
    spans: list[tuple[int, int, int]] = []  # first row, row to stop before, frames
    first = stop = longest = 0
    for count, frames in zip(rows.counts, frame_counts, strict=True):
        end = stop + count
        while stop < end:
            room = points // max(longest, frames, 1) - (stop - first)
            if room <= 0 and stop > first:
                spans.append((first, stop, longest))
                first, longest = stop, 0
            else:
                stop, longest = min(end, stop + max(room, 1)), max(longest, frames)
    if stop > first:
        spans.append((first, stop, longest))
    return [SharedTile(slice(a, b), slice(0, frames), rows.utterances[a:b]) for a, b, frames in spans]


def narrow_tiles(tiles: list[Tile], magnitude: Tensor, tolerance: float) -> list[Tile]:
    """Keep, of each tile, the span of frames outside which gradients are negligible. Waits for the device once.

    Args:
        tiles: of R rows
        magnitude: [R, T] sum of the absolute gradients at each point; 0 beyond a row's frames
        tolerance: all that is left out adds up to at most this share of the largest entry
    """
    if not tiles:
        return tiles
    points = sum(rows * frames for rows, frames in (tile.shape for tile in tiles))
    largest = magnitude.amax()
    # A gradient that is infinite or no number must stay one: beside it nothing is negligible. No comparison with NaN
    # holds, so that all points are then active.
    limit = torch.where(largest.isfinite(), largest * (tolerance / points), torch.nan)
    active = ~(magnitude <= limit)
    frames = torch.arange(magnitude.shape[1], device=magnitude.device)
    first = torch.where(active, frames, magnitude.shape[1]).amin(1)
    last = torch.where(active, frames, -1).amax(1)
    firsts, lasts = torch.stack([first, last]).tolist()
    narrowed = []
    for tile in tiles:
        # All points are active beside an infinite gradient, padding included; a tile ends where its frames do.
        start, stop = min(firsts[tile.rows]), min(max(lasts[tile.rows]) + 1, tile.frames.stop)
        if start < stop:
            narrowed.append(replace(tile, frames=slice(start, stop)))
    return narrowed


class Workspace:
    """One buffer per purpose, reused by all tiles: fresh large tensors would cost more than the arithmetic."""

    def __init__(self, tiles: list[Tile], like: Tensor) -> None:
        self._points = max((rows * frames for rows, frames in (tile.shape for tile in tiles)), default=0)
        self._like = like
        self._buffers: dict[str, Tensor] = {}

    def take(self, name: str, *shape: int) -> Tensor:
        """An uninitialised tensor [rows, frames, width] that shares memory with all others of this name."""
        rows, frames, width = shape
        if name not in self._buffers:
            self._buffers[name] = self._like.new_empty(self._points * width)
        return self._buffers[name][: rows * frames * width].view(shape)


def tile_hidden(tile: Tile, frames: Tensor, prefixes: Tensor, workspace: Workspace) -> Tensor:
    """The hidden vectors of a tile.

    Args:
        tile: of R rows
        frames: [B, T, J] projected encoder frames
        prefixes: [R, J] projected prefix of each row
        workspace: where they are written

    Returns:
        [rows, frames, J], valid until the next call with the same workspace
    """
    result = workspace.take("hidden", *tile.shape, frames.shape[2])
    return hidden_vectors(tile.own_frames(frames, result), prefixes[tile.rows, None], out=result)


def add_hidden_gradient(
    tile: Tile, hidden_grad: Tensor, hidden: Tensor, frame_grads: Tensor, prefix_grads: Tensor
) -> None:
    """Pass on the gradient of a tile's hidden vectors; overwrites both tile tensors.

    Args:
        tile: of R rows
        hidden_grad: [rows, frames, J] gradient of the hidden vectors
        hidden: [rows, frames, J] hidden vectors
        frame_grads: [B, T, J] gradient of the frames, added to
        prefix_grads: [R, J] gradient of the rows' prefixes, added to
    """
    grad = to_sums_gradient(hidden_grad, hidden)
    tile.add_to_frames(grad, frame_grads)
    prefix_grads[tile.rows] += grad.sum(1)


def without_autocast(like: Tensor) -> AbstractContextManager[Any]:
    """Lattice weights are float32 at least: autocast would make its matrix products half precision."""
    return torch.autocast(like.device.type, enabled=False)
