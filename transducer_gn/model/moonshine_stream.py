"""Moonshine's encoder on live audio: many streams in one batch, begun and ended at any time.

A stream holds audio that no chunk has used up, what the convolutions need of the past, three sums, and the keys and
values that attention remembers. A chunk is computed once its audio and `right` more has arrived; its look-ahead is
forgotten afterwards. The vectors that come out are those of a pass over the whole utterance in the same context.

Shapes as in `moonshine`: D width, H heads, A = D / H, W frames of a block, M remembered frames.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from transducer_gn.common.errors import UserError
from transducer_gn.model.chunk import valid_frames
from transducer_gn.model.moonshine import MoonshineEncoder, Statistics, mixed
from transducer_gn.model.moonshine_context import (
    OUTPUT_STEP,
    SECOND_STEP,
    SECOND_WINDOW,
    THIRD_STEP,
    WAVE_STEP,
    WAVE_WINDOW,
    Block,
    Context,
    mixture,
    outputs,
    windows,
)
from transducer_gn.model.moonshine_layer import rotations


@dataclass
class MoonshineStream:
    """One utterance on its way.

    Attributes:
        samples: [n] audio from the beginning of the next wave output on
        waves: [n, D] wave outputs from the beginning of the next second output on
        projected: [n, 2D] second outputs, not normalised, from the beginning of the next chunk's first frame on
        statistics: sums over the wave outputs so far, single numbers
        memory: for each layer [H, M, 2A] rotated keys and values of the frames that the next chunk may see
        last: [0 or 1, E] the last frame so far, from which the next vector is mixed
        chunk: number of the next chunk
        received: samples so far
        finished: no more audio will come
    """

    samples: Tensor
    waves: Tensor
    projected: Tensor
    statistics: Statistics
    memory: list[Tensor]
    last: Tensor
    chunk: int = 0
    received: int = 0
    finished: bool = False

    def accept(self, samples: Tensor) -> None:
        """Append `samples` [n], any number of them."""
        if self.finished:
            raise ValueError("a finished stream takes no more audio")
        self.samples = torch.cat([self.samples, samples.to(self.samples)])
        self.received += len(samples)

    def finish(self) -> None:
        """Say that the utterance has ended; the chunks that remain can then be encoded."""
        self.finished = True


class StreamingMoonshine:
    """Runs streams of one context through an encoder, to vectors every 20 ms."""

    def __init__(self, encoder: MoonshineEncoder, context: Context, layers: Sequence[int] | None = None) -> None:
        if context.chunk is None:
            raise UserError("chunk: streaming needs chunks, and full context has none")
        self._chunk = context.chunk
        self.encoder = encoder
        self.context = context
        self.layers = encoder.chosen_layers(layers)

    def open(self) -> MoonshineStream:
        """A new stream."""
        shape, like = self.encoder.shape, self.encoder.wave.weight.detach()
        none = torch.zeros((), dtype=torch.float64, device=like.device)
        memory = like.new_zeros(shape.heads, 0, 2 * shape.dim // shape.heads)
        return MoonshineStream(
            samples=like.new_zeros(0),
            waves=like.new_zeros(0, shape.dim),
            projected=like.new_zeros(0, 2 * shape.dim),
            statistics=Statistics(none, none, none),
            memory=[memory] * max(self.layers),
            last=like.new_zeros(0, len(self.layers) * shape.dim),
        )

    @torch.no_grad()
    def advance(self, streams: Sequence[MoonshineStream]) -> list[Tensor]:
        """Encode all chunks that are complete; gives the new vectors [n, E] of each stream."""
        vectors = [[stream.last[:0]] for stream in streams]
        while ready := [i for i, stream in enumerate(streams) if self.is_ready(stream)]:
            for i, new in zip(ready, self._step([streams[i] for i in ready]), strict=True):
                vectors[i].append(new)
        return [torch.cat(parts) for parts in vectors]

    def is_ready(self, stream: MoonshineStream) -> bool:
        """Whether the next chunk, or what there is of it at the end, can be encoded."""
        if stream.finished:
            return stream.chunk < self.context.chunks(stream.received)
        return stream.received >= (stream.chunk + 1) * self._chunk + self.context.right

    def _step(self, streams: Sequence[MoonshineStream]) -> list[Tensor]:
        """Encode one chunk of each of the `streams`; gives its vectors [n, E]."""
        blocks = [self.context.block(stream.chunk, stream.received) for stream in streams]
        inputs = [self._convolve(stream, block) for stream, block in zip(streams, blocks, strict=True)]
        vectors = []
        for stream, block, new in zip(streams, blocks, self._attend(streams, blocks, inputs), strict=True):
            vectors.append(self._mix(stream, block, new))
            stream.chunk += 1
        return vectors

    def _convolve(self, stream: MoonshineStream, block: Block) -> Tensor:
        """Run the convolutions over a chunk's new audio; gives the frames [W, D] of its block.

        What no later chunk needs is dropped; copies are kept, since a slice would keep alive what it was cut from.
        """
        encoder = self.encoder
        # Samples that later chunks will hear stay out of this one's statistics.
        later = stream.received - self.context.heard(stream.chunk, stream.received)
        known = len(stream.samples) - later
        count = windows(known, WAVE_WINDOW, WAVE_STEP)
        if count:
            waves = encoder.waves(stream.samples[:known])
            stream.statistics = _add(stream.statistics, waves)
            stream.samples = stream.samples[WAVE_STEP * count :].clone()
            stream.waves = torch.cat([stream.waves, waves])
        count = windows(len(stream.waves), SECOND_WINDOW, SECOND_STEP)
        if count:
            stream.projected = torch.cat([stream.projected, encoder.projected(stream.waves)])
            stream.waves = stream.waves[SECOND_STEP * count :].clone()
        if block.size == 0:
            return stream.waves.new_zeros(0, encoder.shape.dim)
        result = encoder.blocks(stream.projected.unsqueeze(0), [block], _single(stream.statistics))[0, 0]
        stream.projected = stream.projected[THIRD_STEP * block.own :].clone()
        return result

    def _attend(
        self, streams: Sequence[MoonshineStream], blocks: Sequence[Block], inputs: Sequence[Tensor]
    ) -> list[Tensor]:
        """Run the layers over one block of each stream; gives the chosen outputs [own, E] of its own frames."""
        x = pad_sequence(list(inputs), batch_first=True)
        width = x.shape[1]
        if width == 0:
            return [stream.last[:0] for stream in streams]
        remembered = [stream.memory[0].shape[1] for stream in streams]
        past = max(remembered)
        sizes, filled = (torch.tensor(n, device=x.device) for n in ([block.size for block in blocks], remembered))
        # Memories that are shorter than the longest are padded in front, blocks behind.
        visible = torch.cat([valid_frames(filled, past).flip(1), valid_frames(sizes, width)], dim=1)[:, None, None]
        visible = visible.expand(-1, -1, width, -1)
        first = torch.tensor([[block.first] for block in blocks], device=x.device)
        rotation = rotations(first + torch.arange(width, device=x.device), self.encoder.shape.rotated, x.dtype)
        results = []
        for number, layer in enumerate(self.encoder.layers[: max(self.layers)], start=1):
            memories = [stream.memory[number - 1] for stream in streams]
            memory = torch.stack([functional.pad(m, (0, 0, past - m.shape[1], 0)) for m in memories])
            x, known = layer(x, rotation, visible, memory)
            for row, (stream, block) in enumerate(zip(streams, blocks, strict=True)):
                end = past + block.own
                begin = end - max(0, block.first + block.own - self.context.first_seen(stream.chunk + 1))
                stream.memory[number - 1] = known[row, :, begin:end].clone()
            if number in self.layers:
                results.append(self.encoder.result(x, number))
        result = torch.cat(results, dim=2)
        return [row[: block.own] for row, block in zip(result, blocks, strict=True)]

    def _mix(self, stream: MoonshineStream, block: Block, new: Tensor) -> Tensor:
        """The chunk's vectors [n, E], every 20 ms, from its `new` frames [own, E] and the last one before."""
        known = torch.cat([stream.last, new])
        first = block.first - len(stream.last)
        stream.last = known[-1:].clone()
        per_chunk = self._chunk // OUTPUT_STEP
        begin = stream.chunk * per_chunk
        end = begin + per_chunk
        if stream.finished:
            end = min(end, outputs(stream.received))
        if len(known) == 0 or end <= begin:
            return known[:0]
        return mixed(mixture(begin, end, self.context, stream.received), known, first)


def _add(statistics: Statistics, waves: Tensor) -> Statistics:
    """The sums after further `waves` [n, D]."""
    return Statistics(
        statistics.count + waves.numel(),
        statistics.total + waves.sum(dtype=torch.float64),
        statistics.squares + waves.square().sum(dtype=torch.float64),
    )


def _single(statistics: Statistics) -> Statistics:
    """Statistics [1, 1] of one block of one stream."""
    return Statistics(*(value.reshape(1, 1) for value in (statistics.count, statistics.total, statistics.squares)))
