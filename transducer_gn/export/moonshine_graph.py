"""The step of a pretrained front end as a graph: audio of one chunk and what was remembered, to standardised frames.

The audio is that from the beginning of the chunk's first frame to the end of what its frames may hear, so that frames
need nothing of earlier convolutions; only the three sums over wave outputs go on from chunk to chunk. A block always
has W frames, of which the first `frames` are real. The memory has as many frames as the runtime hands in, filled from
behind: a front end that sees everything before has one that grows. See `transducer_gn.model.moonshine`.
"""

import math

import numpy as np
import torch
from torch import Tensor, nn

from transducer_gn.export.graph import BATCH, GraphWriter
from transducer_gn.model.moonshine import MoonshineEncoder, bias_of
from transducer_gn.model.moonshine_context import SECOND_STEP, THIRD_STEP, WAVE_STEP, WAVE_WINDOW, frames, windows
from transducer_gn.model.moonshine_features import MoonshineFeatures
from transducer_gn.model.moonshine_layer import EPSILON, LONGEST_WAVE, MoonshineAttention, MoonshineLayer

# The size of a memory, which may grow.
PAST = "M"


def write_front_end(front_end: MoonshineFeatures) -> GraphWriter:
    """The graph of a front end's step, for chunks and right context as it has them."""
    with torch.no_grad():
        return _FrontEndWriter(front_end).write()


class _FrontEndWriter:
    """Writes one front end; P samples of a window, K wave outputs, W frames, L layers, H heads, A = D / H."""

    def __init__(self, front_end: MoonshineFeatures) -> None:
        self.graph = GraphWriter("front_end_step")
        self.front_end = front_end
        self.encoder: MoonshineEncoder = front_end.encoder
        self.samples = front_end.context.longest_window
        self.frames = frames(self.samples)
        # [N, 1, 1, M + W] what attention sees; [N, 1, W, R / 2, 1] cosines and sines of the block's frames.
        self.visible = self.cosine = self.sine = ""

    def write(self) -> GraphWriter:
        """The whole graph."""
        graph, shape = self.graph, self.encoder.shape
        layers = self.encoder.layers[: max(self.front_end.layers)]
        sizes: list[int | str] = [BATCH, len(layers), shape.heads, PAST, 2 * shape.dim // shape.heads]
        samples = graph.input("samples", [BATCH, self.samples])
        waves, counted, first, real, past = (
            graph.input(name, [BATCH], "int64") for name in ("waves", "counted", "first", "frames", "past")
        )
        sums, memory = graph.input("sums", [BATCH, 3], "float64"), graph.input("memory", sizes)
        outputs, sums = self.waves(samples, waves, counted, sums)
        x = self.convolve(outputs, sums)
        self.see(memory, past, real)
        self.turn(first)
        known, results = [], []
        for number, layer in enumerate(layers, start=1):
            assert isinstance(layer, MoonshineLayer)
            with graph.scope(f"layer{number}"):
                own = graph.one("Gather", memory, graph.constant("number", np.array(number - 1)), axis=1)
                x, new = self.layer(layer, x, own)
                known.append(graph.unsqueeze(new, 1))
                if number in self.front_end.layers:
                    results.append(self.norm(x, self.encoder.output_norm) if number == shape.layers else x)
        vectors = self.standardise(graph.one("Concat", *results, axis=2))
        graph.output("vectors", vectors, [BATCH, self.frames, len(self.front_end.standardisation.mean)])
        graph.output("new_sums", sums, [BATCH, 3], "float64")
        sizes[3] = self.frames
        graph.output("new_memory", graph.one("Concat", *known, axis=1), sizes)
        return graph

    def waves(self, samples: str, waves: str, counted: str, sums: str) -> tuple[str, str]:
        """Wave outputs [N, D, K] of a window, and the sums [N, 3] with those of them that are new."""
        graph = self.graph
        weight = graph.constant("wave", self.encoder.wave.weight)
        outputs = graph.one("Tanh", graph.one("Conv", graph.unsqueeze(samples, 1), weight, strides=[WAVE_STEP]))
        places = graph.constant("places", np.arange(windows(self.samples, WAVE_WINDOW, WAVE_STEP)))
        is_new = graph.one(
            "And",
            graph.one("Less", places, graph.unsqueeze(waves, 1)),
            graph.one("GreaterOrEqual", places, graph.unsqueeze(counted, 1)),
        )
        new = graph.one("Where", graph.unsqueeze(is_new, 1), outputs, graph.constant("nothing", 0.0))
        width = graph.constant("width", np.array(self.encoder.shape.dim))
        count = self.double(graph.one("Mul", graph.one("Sub", waves, counted), width))
        parts = [graph.unsqueeze(count, 1)]
        # 64-bit numbers, since hours may be summed.
        for values in (new, graph.one("Mul", new, new)):
            total = graph.one("ReduceSum", self.double(values), graph.constant("axes", [1, 2]), keepdims=0)
            parts.append(graph.unsqueeze(total, 1))
        return outputs, graph.one("Add", sums, graph.one("Concat", *parts, axis=1))

    def convolve(self, waves: str, sums: str) -> str:
        """Frames [N, W, D] of wave outputs [N, D, K], normalised by the sums [N, 3] of what was heard."""
        graph, encoder = self.graph, self.encoder
        mean, rate = self.mean_and_rate(sums)
        scaled = graph.constant("second", encoder.second.weight * encoder.norm.weight.unsqueeze(1))
        projected = graph.one("Conv", waves, scaled, strides=[SECOND_STEP])
        weight = encoder.second.weight.sum(2)
        slope = graph.constant("slope", (weight @ encoder.norm.weight).unsqueeze(1))
        bias = graph.constant("bias", (weight @ encoder.norm.bias + bias_of(encoder.second)).unsqueeze(1))
        centred = graph.one("Sub", projected, graph.one("Mul", mean, slope))
        x = self.gelu(graph.one("Add", graph.one("Mul", rate, centred), bias))
        third, bias = graph.constant("third", encoder.third.weight), graph.constant("bias", bias_of(encoder.third))
        x = self.gelu(graph.one("Conv", x, third, bias, strides=[THIRD_STEP]))
        return graph.one("Transpose", x, perm=[0, 2, 1])

    def mean_and_rate(self, sums: str) -> tuple[str, str]:
        """Mean and one over the standard deviation, each [N, 1, 1]; see `Statistics`."""
        graph = self.graph
        one, nothing, least = (graph.constant("number", np.array(value)) for value in (1.0, 0.0, EPSILON))
        count, total, squares = graph.split(sums, [1, 1, 1], 1)
        count = graph.one("Max", count, one)
        mean = graph.one("Div", total, count)
        variance = graph.one("Sub", graph.one("Div", squares, count), graph.one("Mul", mean, mean))
        deviation = graph.one("Sqrt", graph.one("Add", graph.one("Max", variance, nothing), least))
        rate = graph.one("Div", one, deviation)
        return graph.unsqueeze(self.single(mean), 2), graph.unsqueeze(self.single(rate), 2)

    def see(self, memory: str, past: str, real: str) -> None:
        """Work out what is real of memory and block, from how much of each [N] is."""
        graph = self.graph
        size = graph.one("Gather", graph.one("Shape", memory), graph.constant("axis", np.array(3)))
        nothing, step = (graph.constant("number", np.array(value)) for value in (0, 1))
        places = graph.one("Range", nothing, size, step)
        is_past = graph.one("GreaterOrEqual", places, graph.unsqueeze(graph.one("Sub", size, past), 1))
        is_frame = graph.one("Less", graph.constant("places", np.arange(self.frames)), graph.unsqueeze(real, 1))
        self.visible = graph.unsqueeze(graph.one("Concat", is_past, is_frame, axis=1), 1, 2)

    def turn(self, first: str) -> None:
        """Work out the rotations of the block's frames, the number [N] of the first of which is given."""
        graph, rotated = self.graph, self.encoder.shape.rotated
        numbers = graph.one("Add", graph.unsqueeze(first, 1), graph.constant("places", np.arange(self.frames)))
        waves = graph.constant("waves", LONGEST_WAVE ** -(np.arange(0, rotated, 2) / rotated))
        # 64-bit angles: see `rotations`. A whole turn is taken away before they become 32-bit ones.
        angles = graph.one("Mul", graph.unsqueeze(self.double(numbers), 2), waves)
        turns = graph.one("Floor", graph.one("Div", angles, graph.constant("turn", np.array(2 * math.pi))))
        angles = graph.one("Sub", angles, graph.one("Mul", turns, graph.constant("turn", np.array(2 * math.pi))))
        single = graph.unsqueeze(self.single(angles), 1, 4)
        self.cosine, self.sine = graph.one("Cos", single), graph.one("Sin", single)

    def layer(self, layer: MoonshineLayer, x: str, memory: str) -> tuple[str, str]:
        """From `x` [N, W, D] and a memory [N, H, M, 2A] to outputs [N, W, D] and what to remember [N, H, W, 2A]."""
        graph, feedforward = self.graph, layer.feedforward
        attended, known = self.attention(layer.attention, self.norm(x, layer.attention_norm), memory)
        x = graph.one("Add", x, attended)
        first, _, last = feedforward
        assert isinstance(first, nn.Linear) and isinstance(last, nn.Linear)
        inner = self.norm(x, layer.feedforward_norm)
        inner = self.gelu(graph.linear("input", inner, first.weight, first.bias))
        return graph.one("Add", x, graph.linear("output", inner, last.weight, last.bias)), known

    def attention(self, part: MoonshineAttention, x: str, memory: str) -> tuple[str, str]:
        """See `MoonshineAttention`."""
        graph, shape = self.graph, self.encoder.shape
        width = shape.dim // shape.heads
        with graph.scope("attention"):
            query, key, value = (
                self.by_head(graph.linear(name, x, linear.weight))
                for name, linear in (("query", part.query), ("key", part.key), ("value", part.value))
            )
            known = graph.one("Concat", self.rotate(key), value, axis=3)
            keys, values = graph.split(graph.one("Concat", memory, known, axis=2), [width, width], 3)
            query = graph.one("Mul", self.rotate(query), graph.constant("scale", float(width**-0.5)))
            scores = graph.one("MatMul", query, graph.one("Transpose", keys, perm=[0, 1, 3, 2]))
            hidden = graph.constant("hidden", float(torch.finfo(torch.float32).min))
            weights = graph.one("Softmax", graph.one("Where", self.visible, scores, hidden), axis=-1)
            attended = graph.one("Transpose", graph.one("MatMul", weights, values), perm=[0, 2, 1, 3])
            return graph.linear("output", graph.reshape(attended, [0, 0, shape.dim]), part.output.weight), known

    def by_head(self, x: str) -> str:
        """From [N, W, D] to [N, H, W, A]."""
        shape = self.encoder.shape
        split = self.graph.reshape(x, [0, 0, shape.heads, shape.dim // shape.heads])
        return self.graph.one("Transpose", split, perm=[0, 2, 1, 3])

    def rotate(self, x: str) -> str:
        """Turn the first R numbers of queries or keys [N, H, W, A], pairs of neighbours, by their frames' angles."""
        graph, rotated = self.graph, self.encoder.shape.rotated
        width = self.encoder.shape.dim // self.encoder.shape.heads
        turned, rest = graph.split(x, [rotated, width - rotated], 3)
        even, odd = graph.split(graph.reshape(turned, [0, 0, 0, rotated // 2, 2]), [1, 1], 4)
        both = (
            graph.one("Sub", graph.one("Mul", even, self.cosine), graph.one("Mul", odd, self.sine)),
            graph.one("Add", graph.one("Mul", odd, self.cosine), graph.one("Mul", even, self.sine)),
        )
        turned = graph.reshape(graph.one("Concat", *both, axis=4), [0, 0, 0, rotated])
        return graph.one("Concat", turned, rest, axis=3)

    def standardise(self, vectors: str) -> str:
        """See `Standardisation`."""
        part = self.front_end.standardisation
        centred = self.graph.one("Sub", vectors, self.graph.constant("mean", part.mean))
        return self.graph.one("Div", centred, self.graph.constant("deviation", part.deviation))

    def norm(self, x: str, part: nn.LayerNorm) -> str:
        """A layer normalisation without bias."""
        scale: Tensor = part.weight
        return self.graph.one("LayerNormalization", x, self.graph.constant("scale", scale), axis=-1, epsilon=part.eps)

    def gelu(self, x: str) -> str:
        """The exact one."""
        graph = self.graph
        error = graph.one("Erf", graph.one("Mul", x, graph.constant("scale", 2**-0.5)))
        half = graph.one("Mul", x, graph.constant("half", 0.5))
        return graph.one("Mul", half, graph.one("Add", error, graph.constant("one", 1.0)))

    def double(self, x: str) -> str:
        """The same as 64-bit numbers."""
        return self.graph.cast(x, "float64")

    def single(self, x: str) -> str:
        """The same as 32-bit numbers."""
        return self.graph.cast(x, "float32")
