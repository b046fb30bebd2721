"""Encoding live audio: many streams in one batch, begun and ended at any time.

A stream holds the feature frames that no chunk has used up yet, and what the layers remember of the past. Streams
that have enough features for a chunk are stacked, run as one batch, and taken apart again. The frames that come out
are those of a whole-utterance pass under the same chunk mask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from transducer_gn.errors import UserError
from transducer_gn.model.attention import relative_positions
from transducer_gn.model.chunk import Chunk, valid_frames
from transducer_gn.model.conformer import LayerCache
from transducer_gn.model.subsampling import FACTOR, OVERLAP

if TYPE_CHECKING:
    from transducer_gn.model.encoder import Encoder


@dataclass
class Stream:
    """One utterance on its way: what was heard and not yet encoded, and what the encoder remembers.

    `features` [n, F] begin one frame before the next output; `memory` [layers, M, 2A] and `history`
    [layers, K - 1, D] are as in `LayerCache`; `finished` says that no more features will come.
    """

    features: Tensor
    memory: Tensor
    history: Tensor
    finished: bool = False

    def accept(self, features: Tensor) -> None:
        """Append feature frames [n, F], any number of them."""
        if self.finished:
            raise ValueError("a finished stream takes no more features")
        self.features = torch.cat([self.features, features.to(self.features)])

    def finish(self) -> None:
        """Say that the utterance has ended; the frames that remain can then be encoded."""
        if not self.finished:
            # The zero frame after the last, as in a whole-utterance pass.
            self.features = torch.cat([self.features, torch.zeros_like(self.features[:1])])
            self.finished = True

    def frames_ready(self, size: int) -> int:
        """How many frames the next chunk of `size` frames would give now: `size`, fewer at the end, or 0."""
        frames = max(0, (len(self.features) - OVERLAP) // FACTOR)
        if frames >= size:
            return size
        return frames if self.finished else 0


class StreamingEncoder:
    """Runs streams of one chunk size and left context through an encoder in evaluation mode.

    It keeps the projections of relative positions, which depend on nothing but the parameters: make a new one when
    these have changed.
    """

    def __init__(self, encoder: Encoder, chunk: Chunk) -> None:
        if chunk.size is None:
            raise UserError("chunk size: streaming needs chunks, and full context has none")
        if not encoder.config.causal:
            raise UserError("model.encoder.causal: streaming needs a causal convolution")
        if encoder.training:
            raise ValueError("streaming needs an encoder in evaluation mode")
        self.encoder = encoder
        self.chunk = chunk
        self._positions: list[Tensor] = []
        self._max_keys = 0

    def open(self) -> Stream:
        """A new stream."""
        like = self.encoder.subsampling.norm.log_eps
        empty = like.detach().new_zeros(1, 1, self.encoder.config.dim)
        caches = [layer.empty_cache(empty) for layer in self.encoder.layers]
        # The zero frame before the first, as in a whole-utterance pass.
        features = like.detach().new_zeros(1, self.encoder.config.feature_dim)
        return Stream(features, torch.cat([c.memory for c in caches]), torch.cat([c.history for c in caches]))

    @torch.no_grad()
    def advance(self, streams: list[Stream]) -> list[Tensor]:
        """Encode all chunks that are complete; gives the new frames [n, D] of each stream."""
        frames: list[list[Tensor]] = [[] for _ in streams]
        while True:
            ready = [(i, n) for i, s in enumerate(streams) if (n := s.frames_ready(self.chunk.size)) > 0]
            if not ready:
                break
            outputs = self._step([streams[i] for i, _ in ready], [n for _, n in ready])
            for (i, count), output in zip(ready, outputs, strict=True):
                frames[i].append(output[:count])
        empty = streams[0].features.new_zeros(0, self.encoder.config.dim) if streams else None
        return [torch.cat([empty, *parts]) for parts in frames]

    def _step(self, streams: list[Stream], counts: list[int]) -> Tensor:
        """Encode one chunk of each of the `streams`; gives [B, size, D], of which `counts` are not padding."""
        size = self.chunk.size
        x = self.encoder.subsampling.windows(self._take_features(streams), torch.tensor(counts))
        lengths = torch.tensor(counts, device=x.device)
        valid = valid_frames(lengths, size)
        past = max(stream.memory.shape[1] for stream in streams)
        remembered = torch.tensor([stream.memory.shape[1] for stream in streams], device=x.device)
        memory = torch.stack([pad_front(stream.memory, past) for stream in streams])
        history = torch.stack([stream.history for stream in streams])
        # Memories that are shorter than the longest are padded in front.
        filled = valid_frames(remembered, past).flip(1)
        visible = torch.cat([filled, valid], dim=1).unsqueeze(1)
        caches = []
        for number, (layer, positions) in enumerate(zip(self.encoder.layers, self._tables(past + size), strict=True)):
            x, cache = layer(x, positions, visible, valid, LayerCache(memory[:, number], history[:, number]))
            caches.append(cache)
        self._remember(streams, caches)
        return x

    def _take_features(self, streams: list[Stream]) -> Tensor:
        """Remove a chunk's features from each stream; gives them [B, 4 size + 5, F], with zeros at the end."""
        used = FACTOR * self.chunk.size
        windows = [stream.features[: used + OVERLAP] for stream in streams]
        for stream in streams:
            # A copy, since a slice would keep all features alive that it was cut from.
            stream.features = stream.features[used:].clone()
        padded = [torch.nn.functional.pad(w, (0, 0, 0, used + OVERLAP - len(w))) for w in windows]
        return torch.stack(padded)

    def _remember(self, streams: list[Stream], caches: list[LayerCache]) -> None:
        """Store in each stream what the layers remember after a chunk, no more than the left context."""
        for row, stream in enumerate(streams):
            kept = stream.memory.shape[1] + self.chunk.size
            if self.chunk.left is not None:
                kept = min(kept, self.chunk.left)
            total = caches[0].memory.shape[1]
            stream.memory = torch.stack([cache.memory[row, total - kept :] for cache in caches])
            stream.history = torch.stack([cache.history[row] for cache in caches])

    def _tables(self, keys: int) -> list[Tensor]:
        """Projected positions [H, keys + size - 1, A / H] of every layer."""
        size = self.chunk.size
        if keys > self._max_keys:
            # With unlimited left context, doubling keeps the cost of growth in proportion to the stream.
            self._max_keys = keys if self.chunk.left is not None and keys == self.chunk.left + size else 2 * keys
            config = self.encoder.config
            like = self.encoder.subsampling.norm.log_eps
            positions = relative_positions(size, self._max_keys, config.dim, like.device).to(like.dtype)
            self._positions = [layer.attention.project_positions(positions) for layer in self.encoder.layers]
        # The largest distances come first.
        return [table[:, self._max_keys - keys :] for table in self._positions]


def pad_front(memory: Tensor, frames: int) -> Tensor:
    """`memory` [layers, M, W] with zero frames in front up to [layers, frames, W]."""
    missing = frames - memory.shape[1]
    return torch.nn.functional.pad(memory, (0, 0, missing, 0)) if missing else memory
