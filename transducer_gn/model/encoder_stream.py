"""Encoding live audio: many streams in one batch, begun and ended at any time.

A stream holds the feature frames that no chunk has used up yet, and what the layers remember of the past. Streams
that have enough features for a chunk are stacked, run as one batch, and taken apart again. The frames that come out
are those of a whole-utterance pass under the same chunk mask.
"""

import torch
from torch import Tensor
from torch.nn import functional

from transducer_gn.common.errors import UserError
from transducer_gn.common.framing import Framing
from transducer_gn.model.attention import relative_positions
from transducer_gn.model.chunk import Chunk, valid_frames
from transducer_gn.model.conformer import LayerCache
from transducer_gn.model.encoder import Encoder


class EncoderStream:
    """One utterance on its way: what was heard and not yet encoded, and what the encoder remembers.

    Features may come at any time, any number of them: they wait here, and nowhere else, for their chunk.

    Attributes:
        features: [n, F] that are not used up; with filter banks they begin one frame before the next output
        caches: one per layer, without the batch dimension: `memory` [M, 2A] and `history` [K - 1, D]
        ended: whether no more features will come
    """

    def __init__(self, features: Tensor, caches: list[LayerCache], framing: Framing, size: int) -> None:
        self.features = features
        self.caches = caches
        self.ended = False
        self._framing = framing
        self._size = size

    def accept(self, features: Tensor) -> None:
        """Append feature frames [n, F], any number of them."""
        if self.ended:
            raise ValueError("a stream that has ended takes no more features")
        self.features = torch.cat([self.features, features.to(self.features)])

    def end(self) -> None:
        """Say that the utterance has ended; what remains can then be encoded."""
        if not self.ended:
            # The zero frames after the last, as in a whole-utterance pass.
            margin = self.features.new_zeros(self._framing.margin, self._framing.feature_dim)
            self.features = torch.cat([self.features, margin])
            self.ended = True

    @property
    def is_ready(self) -> bool:
        """Whether there is a chunk to encode: a full one, or after the end whatever is left, frames or not."""
        if len(self.features) >= self._framing.features_seen(self._size):
            return True
        # What earlier chunks have seen already, and the zero frames after the last, are nothing new.
        return self.ended and len(self.features) > self._framing.overlap + self._framing.margin

    @property
    def frames_ready(self) -> int:
        """Frames that the next step gives: the chunk's size, fewer at the end, or 0."""
        return min(self._size, self._framing.frames_within(len(self.features))) if self.is_ready else 0

    def take_chunk(self) -> Tensor:
        """Use up the features of the next chunk; gives what it sees [features_seen(size), F], with zeros at the end."""
        seen = self._framing.features_seen(self._size)
        window = self.features[:seen]
        # A copy, since a slice would keep all features alive that it was cut from.
        self.features = self.features[self._framing.features_used(self._size) :].clone()
        return functional.pad(window, (0, 0, 0, seen - len(window)))


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
        self.size = chunk.size
        self._positions: list[Tensor] = []
        self._max_keys = 0

    @property
    def framing(self) -> Framing:
        """How long chunks and frames are."""
        return self.encoder.framing

    def open(self) -> EncoderStream:
        """A new stream."""
        like = self._like()
        empty = like.new_zeros(1, 1, self.encoder.config.dim)
        caches = [layer.empty_cache(empty) for layer in self.encoder.conformer_layers]
        # The zero frames before the first, as in a whole-utterance pass.
        features = like.new_zeros(self.framing.margin, self.framing.feature_dim)
        caches = [LayerCache(cache.memory[0], cache.history[0]) for cache in caches]
        return EncoderStream(features, caches, self.framing, self.size)

    def advance(self, streams: list[EncoderStream]) -> list[Tensor]:
        """Encode all chunks that are complete; gives the new frames [n, D] of each stream."""
        frames = [[new] for new in self.step(streams)]
        while any(stream.is_ready for stream in streams):
            for parts, new in zip(frames, self.step(streams), strict=True):
                parts.append(new)
        return [torch.cat(parts) for parts in frames]

    @torch.no_grad()
    def step(self, streams: list[EncoderStream]) -> list[Tensor]:
        """Encode one chunk of each stream that is ready, in one batch; gives the new frames [n, D] of each stream."""
        frames = [self._like().new_zeros(0, self.encoder.config.dim) for _ in streams]
        ready = [number for number, stream in enumerate(streams) if stream.is_ready]
        counts = [streams[number].frames_ready for number in ready]
        windows = [streams[number].take_chunk() for number in ready]
        # A rest that is too short for a frame is used up as well, but not encoded.
        rows = [row for row, count in enumerate(counts) if count > 0]
        if rows:
            chosen = [streams[ready[row]] for row in rows]
            output = self._encode(chosen, torch.stack([windows[row] for row in rows]), [counts[row] for row in rows])
            for row, encoded in zip(rows, output, strict=True):
                frames[ready[row]] = encoded[: counts[row]]
        return frames

    def _encode(self, streams: list[EncoderStream], features: Tensor, counts: list[int]) -> Tensor:
        """Encode one chunk of each stream and remember it.

        Args:
            features: [B, features_seen(size), F] that the chunks see
            counts: frames of each chunk that are not padding

        Returns:
            [B, size, D]
        """
        lengths = torch.tensor(counts, device=features.device)
        x = self.encoder.subsampling.windows(features, lengths)
        valid = valid_frames(lengths, self.size)
        remembered = [len(stream.caches[0].memory) for stream in streams]
        past = max(remembered)
        # Memories that are shorter than the longest are padded in front.
        filled = valid_frames(torch.tensor(remembered, device=x.device), past).flip(1)
        visible = torch.cat([filled, valid], dim=1).unsqueeze(1)
        tables = self._tables(past + self.size)
        for number, (layer, positions) in enumerate(zip(self.encoder.conformer_layers, tables, strict=True)):
            x, cache = layer(x, positions, visible, valid, stack([s.caches[number] for s in streams], past))
            for row, (stream, frames) in enumerate(zip(streams, remembered, strict=True)):
                stream.caches[number] = self._cut(cache, row, frames + self.size)
        return x

    def _cut(self, cache: LayerCache, row: int, frames: int) -> LayerCache:
        """What a stream keeps of a batch's cache: its last `frames`, but no more than the left context."""
        if self.chunk.left is not None:
            frames = min(frames, self.chunk.left)
        memory = cache.memory[row, cache.memory.shape[1] - frames :]
        # Copies, since views would keep the caches of all streams of the batch alive.
        return LayerCache(memory.clone(), cache.history[row].clone())

    def _tables(self, keys: int) -> list[Tensor]:
        """Projected positions [H, keys + size - 1, A / H] of every layer."""
        if keys > self._max_keys:
            # With unlimited left context, doubling keeps the cost of growth in proportion to the stream.
            self._max_keys = 2 * keys if self.chunk.left is None else self.chunk.left + self.size
            like = self._like()
            positions = relative_positions(self.size, self._max_keys, self.encoder.config.dim, like.device)
            positions = positions.to(like.dtype)
            self._positions = [layer.attention.project_positions(positions) for layer in self.encoder.conformer_layers]
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
