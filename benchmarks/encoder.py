"""What the encoder costs beyond its matrix multiplications, and what streaming costs beyond whole utterances.

The encoder has the paper's size (12 layers, width 512, attention width 1024) and gets utterances of 10 s under the
chunk mask of evaluation (16 frames, left context 64). Three ratios:

- `forward`: a pass in evaluation mode without gradients, over the same matrix multiplications alone;
- `forward_backward`: a pass in training mode (dropout, balancers and layer drop on) with its gradients, over the same
  matrix multiplications and the two that each of them needs for its gradients, alone;
- `streaming`: 8 utterances as live streams of one batch, features arriving chunk by chunk, over a pass in evaluation
  mode over the same utterances as wholes. `streaming_single` is the same for one utterance: there a step multiplies
  all weights with 16 frames only, and the time to load the weights dominates.

"The matrix multiplications alone" are `torch.mm` and `torch.bmm` into buffers that exist already, with the shapes of
the encoder's: all linear layers with a weight matrix of their own per layer; the projection of the 2T - 1 relative
positions; per head the scores by content [T, E] x [E, T] of each utterance, the scores by position [B T, E] x
[E, 2T - 1], and the weighted values [T, T] x [T, E]; and the three convolutions of the subsampling as products of
unfolded input [outputs, 9 channels] and weights, the unfolding not counted. For gradients each comes twice more
(gradient of either factor), but for the first convolution, whose input needs none. The depthwise convolutions are
left out, as they are no matrix multiplications: their cost counts against the encoder alone.

Both sides are measured alternately in one run, and the best time of each counts. By default all run in one thread, and
processor time counts: that is what the work costs, also on a machine that has other work. With more threads the clock
on the wall counts, and the machine should be idle.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from transducer_gn.common.files import write_text
from transducer_gn.common.framing import FILTER_BANKS
from transducer_gn.config import EncoderConfig
from transducer_gn.model.chunk import Chunk
from transducer_gn.model.encoder import Encoder
from transducer_gn.model.encoder_stream import StreamingEncoder
from transducer_gn.model.subsampling import CHANNELS

CHUNK = Chunk(16, 64)

# One multiplication [batch, rows, inner] x [batch, inner, columns]; the gradient of its first factor may not be needed.
Shape = tuple[int, int, int, int, bool]


def subsampling_shapes(config: EncoderConfig, utterances: int, frames: int) -> list[Shape]:
    """The multiplications of the subsampling for `frames` outputs per utterance."""
    bands = FILTER_BANKS.feature_dim
    shapes = []
    inputs = 1
    for stage, (outputs, rows) in enumerate(zip(CHANNELS, (4 * frames + 3, 2 * frames + 1, frames), strict=True)):
        bands = bands if stage == 0 else (bands - 1) // 2
        shapes.append((1, utterances * rows * bands, 9 * inputs, outputs, stage > 0))
        inputs = outputs
    return [*shapes, (1, utterances * frames, inputs * bands, config.dim, True)]


def layer_shapes(config: EncoderConfig, utterances: int, frames: int) -> list[Shape]:
    """The multiplications of one Conformer layer."""
    rows, distances = utterances * frames, 2 * frames - 1
    heads, head_dim = config.heads, config.attention_dim // config.heads
    feedforward = [
        (1, rows, config.dim, config.feedforward_dim, True),
        (1, rows, config.feedforward_dim, config.dim, True),
    ]
    attention = [
        (1, rows, config.dim, 3 * config.attention_dim, True),
        (1, distances, config.dim, config.attention_dim, False),
        (heads * utterances, frames, head_dim, frames, True),
        (heads, rows, head_dim, distances, True),
        (heads * utterances, frames, frames, head_dim, True),
        (1, rows, config.attention_dim, config.dim, True),
    ]
    convolution = [(1, rows, config.dim, 2 * config.dim, True), (1, rows, config.dim, config.dim, True)]
    return feedforward + attention + convolution + feedforward


def flops(shapes: list[Shape], backward: bool) -> int:
    """Floating-point operations of the multiplications, and of those for their gradients if `backward`."""
    return sum(
        2 * batch * rows * inner * columns * (1 + backward * (1 + both)) for batch, rows, inner, columns, both in shapes
    )


class Multiplications:
    """The encoder's matrix multiplications alone, with factors and results allocated beforehand."""

    def __init__(self, config: EncoderConfig, utterances: int, frames: int) -> None:
        self.shapes = subsampling_shapes(config, utterances, frames)
        self.shapes += layer_shapes(config, utterances, frames) * config.layers
        # As in the encoder, weights are many and activations are recycled by the allocator.
        self.activations: dict[tuple[int, ...], Tensor] = {}
        self.work = []
        for batch, rows, inner, columns, both in self.shapes:
            first = self._activation(batch, rows, inner)
            second = torch.randn(batch, inner, columns)
            self.work.append((first, second, self._activation(batch, rows, columns), both))

    def forward(self) -> None:
        """Every product once."""
        for first, second, result, _ in self.work:
            multiply(first, second, result)

    def forward_backward(self) -> None:
        """Every product, and the two products that are its gradients."""
        self.forward()
        for first, second, result, both in reversed(self.work):
            multiply(first.transpose(1, 2), result, self._activation(*second.shape))
            if both:
                multiply(result, second.transpose(1, 2), self._activation(*first.shape))

    def _activation(self, *shape: int) -> Tensor:
        """A buffer of this shape, the same every time."""
        if shape not in self.activations:
            self.activations[shape] = torch.randn(shape)
        return self.activations[shape]


def multiply(first: Tensor, second: Tensor, result: Tensor) -> None:
    """`result` [n, rows, columns] = `first` [n, rows, inner] x `second` [n, inner, columns]."""
    if len(first) == 1:
        torch.mm(first[0], second[0], out=result[0])
    else:
        torch.bmm(first, second, out=result)


class EncoderRuns:
    """The encoder and its input."""

    def __init__(self, config: EncoderConfig, utterances: int, feature_frames: int) -> None:
        self.encoder = Encoder(config)
        self.features = torch.randn(utterances, feature_frames, FILTER_BANKS.feature_dim)
        self.lengths = torch.full((utterances,), feature_frames)

    @torch.no_grad()
    def forward(self, utterances: int) -> None:
        """A masked pass over whole utterances."""
        self.encoder.eval()
        self.encoder(self.features[:utterances], self.lengths[:utterances], CHUNK)

    def forward_backward(self, utterances: int) -> None:
        """A training pass; gradients replace those of the last one."""
        self.encoder.train()
        self.encoder.zero_grad(set_to_none=True)
        output, _ = self.encoder(self.features[:utterances], self.lengths[:utterances], CHUNK)
        output.backward(torch.ones_like(output))

    def stream(self, utterances: int) -> None:
        """The same utterances as live streams."""
        self.encoder.eval()
        streaming = StreamingEncoder(self.encoder, CHUNK)
        streams = [streaming.open() for _ in range(utterances)]
        for piece in self.features[:utterances].split(FILTER_BANKS.features_used(CHUNK.size), dim=1):
            for stream, features in zip(streams, piece, strict=True):
                stream.accept(features)
            streaming.advance(streams)
        for stream in streams:
            stream.end()
        streaming.advance(streams)


def best_times(functions: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """The best seconds of each function, called in turn."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds + 1):  # the first round warms up
        for name, function in functions.items():
            start = clock()
            function()
            times[name].append(clock() - start)
    return {name: min(values[1:]) for name, values in times.items()}


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description="Cost of the encoder against its matrix multiplications alone.")
    parser.add_argument("--utterances", type=int, default=4, help="utterances per batch")
    parser.add_argument("--streams", type=int, default=8, help="streams per batch")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of an utterance")
    parser.add_argument("--rounds", type=int, default=3, help="measurements, of which the best counts")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(arguments.threads)
    config = EncoderConfig()
    feature_frames = round(100 * arguments.seconds)
    frames = FILTER_BANKS.encoder_frames(feature_frames)
    alone = Multiplications(config, arguments.utterances, frames)
    runs = EncoderRuns(config, max(arguments.utterances, arguments.streams), feature_frames)
    seconds = best_times(
        {
            "multiplications_forward": alone.forward,
            "encoder_forward": lambda: runs.forward(arguments.utterances),
            "masked": lambda: runs.forward(arguments.streams),
            "streaming": lambda: runs.stream(arguments.streams),
            "masked_single": lambda: runs.forward(1),
            "streaming_single": lambda: runs.stream(1),
            "multiplications_forward_backward": alone.forward_backward,
            "encoder_forward_backward": lambda: runs.forward_backward(arguments.utterances),
        },
        arguments.rounds,
    )
    ratios = {
        "forward": seconds["encoder_forward"] / seconds["multiplications_forward"],
        "forward_backward": seconds["encoder_forward_backward"] / seconds["multiplications_forward_backward"],
        "streaming": seconds["streaming"] / seconds["masked"],
        "streaming_single": seconds["streaming_single"] / seconds["masked_single"],
    }
    for name, value in seconds.items():
        print(f"{name:34s} {value:8.3f} s")
    for name, value in ratios.items():
        print(f"ratio {name:28s} {value:8.2f}")
    speed = flops(alone.shapes, backward=False) / seconds["multiplications_forward"]
    print(f"the forward multiplications run at {speed / 1e9:.0f} GFLOP/s")
    if arguments.json:
        settings = {name: value for name, value in vars(arguments).items() if name != "json"}
        write_text(arguments.json, json.dumps({"ratios": ratios, "seconds": seconds, "settings": settings}, indent=2))


if __name__ == "__main__":
    main()
