"""Encoding live audio: many streams in one batch, begun and ended at any time.

A stream holds the feature frames that no chunk has used up yet, and what the layers remember of the past. Streams
that have enough features for a chunk are stacked, run as one batch, and taken apart again. The frames that come out
are those of a whole-utterance pass under the same chunk mask.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from transducer_gn.common.errors import UserError
from transducer_gn.common.units import SUBSAMPLING, SUBSAMPLING_OVERLAP
from transducer_gn.model.attention import relative_positions
from transducer_gn.model.chunk import Chunk, valid_frames
from transducer_gn.model.conformer import LayerCache
from transducer_gn.model.encoder import Encoder


@dataclass
class Stream:
    """One utterance on its way: what was heard and not yet encoded, and what the encoder remembers.

    `features` [n, F] begin one frame before the next output. `caches` has one entry per layer, without the batch
    dimension: `memory` [M, 2A] and `history` [K - 1, D]. `finished` says that no more features will come.
    """

    features: Tensor
    caches: list[LayerCache]
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
        frames = max(0, (len(self.features) - SUBSAMPLING_OVERLAP) // SUBSAMPLING)
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
        like = self._like()
        empty = like.new_zeros(1, 1, self.encoder.config.dim)
        caches = [layer.empty_cache(empty) for layer in self.encoder.layers]
        # The zero frame before the first, as in a whole-utterance pass.
        features = like.new_zeros(1, self.encoder.config.feature_dim)
        return Stream(features, [LayerCache(cache.memory[0], cache.history[0]) for cache in caches])

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
        features = self._take_features(streams)
        lengths = torch.tensor(counts, device=features.device)
        x = self.encoder.subsampling.windows(features, lengths)
        valid = valid_frames(lengths, self.chunk.size)
        remembered = [len(stream.caches[0].memory) for stream in streams]
        past = max(remembered)
        # Memories that are shorter than the longest are padded in front.
        filled = valid_frames(torch.tensor(remembered, device=x.device), past).flip(1)
        visible = torch.cat([filled, valid], dim=1).unsqueeze(1)
        tables = self._tables(past + self.chunk.size)
        for number, (layer, positions) in enumerate(zip(self.encoder.layers, tables, strict=True)):
            x, cache = layer(x, positions, visible, valid, stack([s.caches[number] for s in streams], past))
            for row, (stream, frames) in enumerate(zip(streams, remembered, strict=True)):
                stream.caches[number] = self._cut(cache, row, frames + self.chunk.size)
        return x

    def _take_features(self, streams: list[Stream]) -> Tensor:
        """Remove a chunk's features from each stream; gives them [B, 4 size + 5, F], with zeros at the end."""
        used = SUBSAMPLING * self.chunk.size
        windows = [stream.features[: used + SUBSAMPLING_OVERLAP] for stream in streams]
        for stream in streams:
            # A copy, since a slice would keep all features alive that it was cut from.
            stream.features = stream.features[used:].clone()
        padded = [functional.pad(w, (0, 0, 0, used + SUBSAMPLING_OVERLAP - len(w))) for w in windows]
        return torch.stack(padded)

    def _cut(self, cache: LayerCache, row: int, frames: int) -> LayerCache:
        """What a stream keeps of a batch's cache: its last `frames`, but no more than the left context."""
        if self.chunk.left is not None:
            frames = min(frames, self.chunk.left)
        memory = cache.memory[row, cache.memory.shape[1] - frames :]
        # Copies, since views would keep the caches of all streams of the batch alive.
        return LayerCache(memory.clone(), cache.history[row].clone())

    def _tables(self, keys: int) -> list[Tensor]:
        """Projected positions [H, keys + size - 1, A / H] of every layer."""
        size = self.chunk.size
        if keys > self._max_keys:
            # With unlimited left context, doubling keeps the cost of growth in proportion to the stream.
            self._max_keys = 2 * keys if self.chunk.left is None else self.chunk.left + size
            like = self._like()
            positions = relative_positions(size, self._max_keys, self.encoder.config.dim, like.device).to(like.dtype)
            self._positions = [layer.attention.project_positions(positions) for layer in self.encoder.layers]
        # The largest distances come first.
        return [table[:, self._max_keys - keys :] for table in self._positions]

    def _like(self) -> Tensor:
        """A tensor of the device and type that the encoder computes with."""
        return self.encoder.subsampling.norm.log_eps.detach()


def stack(caches: list[LayerCache], frames: int) -> LayerCache:
    """One layer's caches of several streams as a batch, memories padded in front up to `frames`."""
    missing = [frames - len(cache.memory) for cache in caches]
    memories = [functional.pad(c.memory, (0, 0, n, 0)) if n else c.memory for c, n in zip(caches, missing, strict=True)]
    return LayerCache(torch.stack(memories), torch.stack([cache.history for cache in caches]))
