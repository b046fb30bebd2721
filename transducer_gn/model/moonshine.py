"""Moonshine's encoder (Useful Sensors, 2024) as a module that streams: from samples to a frame every 24 ms.

Published for whole utterances, it is made to stream by what a frame may see (`moonshine_context`): attention is masked
by chunks, and the one normalisation that looks at the whole input takes its statistics from what was heard by then.
Under full context it is the published encoder.

That normalisation gives every wave output w the value scale * (w - mean) / deviation + bias with one mean and one
deviation over all of them. The second convolution is linear, so it is applied before: mean and deviation, which differ
from chunk to chunk, then enter as two numbers per chunk, and no chunk convolves anew what an earlier one has had.

Shapes: B utterances, N samples, C chunks, W frames of a block, L = C * W, F frames, D width, H heads, M remembered.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from transducer_gn.common.errors import require
from transducer_gn.model.chunk import valid_frames
from transducer_gn.model.moonshine_context import (
    FULL_CONTEXT,
    SECOND_STEP,
    SECOND_WINDOW,
    THIRD_STEP,
    THIRD_WINDOW,
    WAVE_STEP,
    WAVE_WINDOW,
    Block,
    Context,
    Mixture,
    frames,
    mixture,
    outputs,
    wave_outputs,
)
from transducer_gn.model.moonshine_layer import EPSILON, MoonshineLayer, Stripe, rotations

# Frames of whole utterances that attend together, unless a block has more: fewer see less in vain, more multiply faster
STRIPE = 128


@dataclass(frozen=True)
class MoonshineShape:
    """Sizes of the encoder; those of its convolutions' windows are fixed.

    Attributes:
        name: what errors call it
        dim: width of the frames
        layers: attention layers
        heads: attention heads
        feedforward_dim: inner width of the feed-forward modules
        rotated: numbers of each head's queries and keys that are rotated by their position; even
    """

    name: str = "Moonshine tiny"
    dim: int = 288
    layers: int = 6
    heads: int = 8
    feedforward_dim: int = 1152
    rotated: int = 32


MOONSHINE_TINY = MoonshineShape()


@dataclass(frozen=True)
class Statistics:
    """Sums over all wave outputs heard so far, in 64-bit numbers since hours may be summed.

    Attributes:
        count: [...] how many numbers were summed
        total: [...] their sum
        squares: [...] the sum of their squares
    """

    count: Tensor
    total: Tensor
    squares: Tensor

    def mean_and_rate(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Mean [...] and one over the standard deviation [...]."""
        count = self.count.clamp(min=1)
        mean = self.total / count
        variance = (self.squares / count - mean.square()).clamp(min=0)
        return mean.to(dtype), (variance + EPSILON).rsqrt().to(dtype)


class MoonshineEncoder(nn.Module):
    """Samples to frames. There is no dropout: training and evaluation mode are the same."""

    def __init__(self, shape: MoonshineShape) -> None:
        super().__init__()
        self.shape = shape
        dim = shape.dim
        self.wave = nn.Conv1d(1, dim, WAVE_WINDOW, WAVE_STEP, bias=False)
        self.norm = nn.GroupNorm(1, dim)
        self.second = nn.Conv1d(dim, 2 * dim, SECOND_WINDOW, SECOND_STEP)
        self.third = nn.Conv1d(2 * dim, dim, THIRD_WINDOW, THIRD_STEP)
        self.layers = nn.ModuleList(
            MoonshineLayer(dim, shape.heads, shape.feedforward_dim) for _ in range(shape.layers)
        )
        self.output_norm = nn.LayerNorm(dim, eps=EPSILON, bias=False)

    def forward(
        self, samples: Tensor, lengths: Tensor, context: Context = FULL_CONTEXT, layers: Sequence[int] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Encode whole utterances, each frame seeing what `context` lets it see.

        Args:
            samples: [B, N] audio between -1 and 1
            lengths: [B] number of samples of each utterance
            context: what frames see
            layers: those whose outputs are wanted, from 1; None for the last

        Returns:
            frames [B, F, D * number of layers], zero at padding, and their numbers [B]
        """
        chosen = self.chosen_layers(layers)
        sizes = lengths.tolist()
        longest = max(sizes)
        counts = torch.tensor([frames(size) for size in sizes], device=samples.device)
        blocks = [context.block(number, longest) for number in range(context.chunks(longest))]
        if not blocks or int(counts.max()) == 0:
            return samples.new_zeros(len(sizes), 0, len(chosen) * self.shape.dim), counts
        waves = self.waves(samples)
        heard = [[wave_outputs(context.heard(c, size)) for c in range(len(blocks))] for size in sizes]
        statistics = cumulative_statistics(waves, torch.tensor(heard, device=samples.device))
        x = self.blocks(self.projected(waves), blocks, statistics)
        width = x.shape[2]
        numbers = _frame_numbers(blocks, width).to(x.device)
        visible = _visible_slots(blocks, width, context.left).to(x.device)
        visible = visible & (numbers.flatten() < counts.unsqueeze(1)).unsqueeze(1)
        # Padding sees itself, since not every implementation of attention takes a row that sees nothing.
        visible = visible | torch.eye(visible.shape[2], dtype=torch.bool, device=x.device)
        seen: Tensor | Sequence[Stripe] = visible.unsqueeze(1)
        if _divides_attention(x.device):
            seen = _stripes(blocks, width, context.left, visible)
        rotation = rotations(numbers.flatten().unsqueeze(0), self.shape.rotated, x.dtype)
        results = []
        x = x.flatten(1, 2)
        for number, layer in enumerate(self.layers[: max(chosen)], start=1):
            x, _ = layer(x, rotation, seen)
            if number in chosen:
                results.append(self.result(x, number))
        own = torch.tensor([c * width + i for c, block in enumerate(blocks) for i in range(block.own)])
        result = torch.cat(results, dim=2).index_select(1, own.to(x.device))
        return result * valid_frames(counts, result.shape[1]).unsqueeze(2), counts

    def features(
        self, samples: Tensor, lengths: Tensor, context: Context = FULL_CONTEXT, layers: Sequence[int] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Encode whole utterances into vectors every 20 ms; arguments and results are those of `forward`."""
        encoded, _ = self(samples, lengths, context, layers)
        counts = [outputs(length) for length in lengths.tolist()]
        vectors = [
            mixed(mixture(0, count, context, length), row) if count else row[:0]
            for row, count, length in zip(encoded, counts, lengths.tolist(), strict=True)
        ]
        return pad_sequence(vectors, batch_first=True), torch.tensor(counts, device=samples.device)

    def chosen_layers(self, layers: Sequence[int] | None) -> tuple[int, ...]:
        """The layers whose outputs are wanted, checked; from None the last one."""
        chosen = (self.shape.layers,) if layers is None else tuple(layers)
        possible = range(1, self.shape.layers + 1)
        require(
            len(chosen) > 0 and all(number in possible for number in chosen) and sorted(set(chosen)) == list(chosen),
            "layers",
            f"must be rising numbers from 1 to {self.shape.layers}, not {list(chosen)}",
        )
        return chosen

    def waves(self, samples: Tensor) -> Tensor:
        """Wave outputs [..., n, D] of `samples` [..., N]; each depends on its 127 samples alone."""
        return torch.tanh(convolve(samples.unsqueeze(-1), self.wave.weight, WAVE_STEP))

    def projected(self, waves: Tensor) -> Tensor:
        """Second outputs [..., n, 2D] of `waves` [..., m, D] before their normalisation, which is applied later."""
        return convolve(waves, self.second.weight * self.norm.weight.unsqueeze(1), SECOND_STEP)

    def blocks(self, projected: Tensor, blocks: Sequence[Block], statistics: Statistics) -> Tensor:
        """What the layers get: the frames of every block, normalised by what was heard at its time.

        Args:
            projected: [B, n, 2D] second outputs from the first of the first block on, not normalised
            blocks: C blocks
            statistics: [B, C] of what the frames of each block may know

        Returns:
            [B, C, W, D] frames, of which only the first `size` of each block mean anything
        """
        width = max(block.size for block in blocks)
        begin = torch.tensor([THIRD_STEP * (block.first - blocks[0].first) for block in blocks])
        index = begin.unsqueeze(1) + torch.arange(THIRD_STEP * (width - 1) + THIRD_WINDOW)
        # What goes beyond the end belongs to no frame that is complete.
        index = index.clamp(max=projected.shape[1] - 1).to(projected.device)
        mean, rate = (value[:, :, None, None] for value in statistics.mean_and_rate(projected.dtype))
        weight = self.second.weight.sum(2)
        slope, bias = weight @ self.norm.weight, weight @ self.norm.bias + bias_of(self.second)
        x = functional.gelu(rate * (projected[:, index] - mean * slope) + bias)
        return functional.gelu(convolve(x, self.third.weight, THIRD_STEP) + bias_of(self.third))

    def result(self, x: Tensor, number: int) -> Tensor:
        """The output [..., D] of layer `number`, from 1; the last one's is normalised, as published."""
        return self.output_norm(x) if number == self.shape.layers else x


def bias_of(convolution: nn.Conv1d) -> Tensor:
    """The biases [D] of a convolution that has some."""
    if convolution.bias is None:
        raise ValueError("this convolution has no biases")
    return convolution.bias


def convolve(x: Tensor, weight: Tensor, step: int) -> Tensor:
    """Convolve over time without padding, as one matrix product.

    Args:
        x: [..., T, I] inputs
        weight: [O, I, K] weights
        step: inputs from one output to the next

    Returns:
        [..., (T - K) // step + 1, O] outputs
    """
    return x.unfold(-2, weight.shape[2], step).flatten(-2) @ weight.flatten(1).T


def mixed(mixture: Mixture, values: Tensor, first: int = 0) -> Tensor:
    """Outputs [..., K, D] from the `values` [..., F, D] of frames from number `first` on."""
    earlier, later = (
        values.index_select(-2, torch.from_numpy(number - first).to(values.device))
        for number in (mixture.earlier, mixture.later)
    )
    share = torch.from_numpy(mixture.share).to(values)
    return torch.lerp(earlier, later, share.unsqueeze(1))


def cumulative_statistics(waves: Tensor, heard: Tensor) -> Statistics:
    """Statistics [B, C] of the first `heard` [B, C] of the `waves` [B, n, D]."""
    last = (heard - 1).clamp(min=0)
    total, squares = (
        values.sum(2, dtype=torch.float64).cumsum(1).gather(1, last) for values in (waves, waves.square())
    )
    return Statistics(heard.double() * waves.shape[2], total, squares)


def _frame_numbers(blocks: Sequence[Block], width: int) -> Tensor:
    """The frame's number [C, W] at every slot."""
    return torch.tensor([block.first for block in blocks]).unsqueeze(1) + torch.arange(width)


def _divides_attention(device: torch.device) -> bool:
    """Whether attention over whole utterances is quicker in stripes: a dozen calls for one, which compute less.

    An accelerator pays for launches rather than for what is masked.
    """
    return device.type == "cpu"


def _stripes(blocks: Sequence[Block], width: int, left: int | None, visible: Tensor) -> list[Stripe]:
    """Divide the slots of some blocks at a time among stripes.

    Args:
        blocks, width, left: see `_visible_slots`
        visible: [B, L, L] true where the row's slot may see the column's
    """
    stripes: list[Stripe] = []
    slots: list[Tensor] = []  # of what lasts of each
    several = max(1, STRIPE // width)
    for begin in range(0, len(blocks), several):
        part = blocks[begin : begin + several]
        own = torch.tensor([c * width + i for c, block in enumerate(part) for i in range(block.own)], dtype=torch.long)
        own = own.to(visible.device)
        rows = slice(begin * width, (begin + len(part)) * width)
        if left is None:
            # Whoever is not padding sees all of what lasts.
            first, seen = 0, visible[:, rows, rows]
        else:
            first = max(0, begin - left) // several
            columns = torch.cat([*slots[first:], torch.arange(rows.start, rows.stop, device=visible.device)])
            seen = visible[:, rows].index_select(2, columns)
        stripes.append(Stripe(own, first, seen.unsqueeze(1)))
        slots.append(rows.start + own)
    return stripes


def _visible_slots(blocks: Sequence[Block], width: int, left: int | None) -> Tensor:
    """True [L, L] where the row's slot may see the column's.

    A block sees all of itself and the own frames of `left` blocks before it, None for all.
    """
    slot = torch.arange(width)
    own = (slot < torch.tensor([block.own for block in blocks]).unsqueeze(1)).flatten()
    used = (slot < torch.tensor([block.size for block in blocks]).unsqueeze(1)).flatten()
    chunk = torch.arange(len(blocks)).repeat_interleave(width)
    distance = chunk.unsqueeze(1) - chunk
    before = (distance > 0) & own
    if left is not None:
        before &= distance <= left
    return before | ((distance == 0) & used)
