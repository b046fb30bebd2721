"""The encoder's step as a graph: one chunk of features and what was remembered, to frames and what to remember.

Sizes but that of the batch are fixed: a memory always holds `left` frames, of which the last `past` are real, and a
chunk always has `size` frames, of which the first `frames` are real. Whatever is not real is hidden from attention.
Frames come out projected for the joiner, since nobody needs them otherwise.
"""

import numpy as np
import torch
from torch import Tensor

from transducer_gn.export.graph import BATCH, GraphWriter, Shape
from transducer_gn.model.activation import BasicNorm
from transducer_gn.model.attention import RelativeAttention, relative_positions
from transducer_gn.model.conformer import ConformerLayer, Convolution, FeedForward
from transducer_gn.model.scaled import ScaledConv2d, ScaledLinear
from transducer_gn.model.stacking import Stacking
from transducer_gn.model.transducer import Transducer


def write_encoder(model: Transducer, size: int, left: int) -> GraphWriter:
    """The graph of an encoder's step for chunks of `size` frames that see `left` frames before them."""
    with torch.no_grad():
        return _EncoderWriter(model, size, left).write()


class _EncoderWriter:
    """Writes one encoder; Q is the size of a chunk, M that of a memory."""

    def __init__(self, model: Transducer, size: int, left: int) -> None:
        self.graph = GraphWriter("encoder_step")
        self.model = model
        self.config = model.encoder.config
        self.size, self.left = size, left
        # [N, Q, 1] whether a frame of the chunk is real; [N, 1, 1, M + Q] the same of all that attention looks at.
        self.real_frames = self.real_keys = ""

    def write(self) -> GraphWriter:
        """The whole graph."""
        graph, config, encoder = self.graph, self.config, self.model.encoder
        memories: Shape = [BATCH, config.layers, self.left, 2 * config.attention_dim]
        histories: Shape = [BATCH, config.layers, config.kernel - 1, config.dim]
        features = graph.input(
            "features", [BATCH, encoder.framing.features_seen(self.size), encoder.framing.feature_dim]
        )
        frames, past = (graph.input(name, [BATCH], "int64") for name in ("frames", "past"))
        memory, history = graph.input("memory", memories), graph.input("history", histories)
        self.see(frames, past)
        x = self.subsample(features)
        new_memories, new_histories = [], []
        for number, layer in enumerate(encoder.conformer_layers):
            with graph.scope(f"layer{number}"):
                index = graph.constant("number", np.array(number))
                own = (graph.one("Gather", cache, index, axis=1) for cache in (memory, history))
                x, *caches = self.layer(layer, x, *own)
                new_memories.append(graph.unsqueeze(caches[0], 1))
                new_histories.append(graph.unsqueeze(caches[1], 1))
        joiner = self.model.joiner
        projected = linear(graph, "joiner", x, joiner.encoder_projection)
        graph.output("projected_frames", projected, [BATCH, self.size, len(joiner.output_weight[0])])
        longer = graph.one("Add", past, graph.constant("size", [self.size]))
        graph.output("new_past", graph.one("Min", longer, graph.constant("left", [self.left])), [BATCH], "int64")
        graph.output("new_memory", graph.one("Concat", *new_memories, axis=1), memories)
        graph.output("new_history", graph.one("Concat", *new_histories, axis=1), histories)
        return graph

    def see(self, frames: str, past: str) -> None:
        """Work out what is real of chunk and memory, from how much of each [N] is."""
        graph = self.graph
        is_frame = graph.one("Less", graph.constant("places", np.arange(self.size)), graph.unsqueeze(frames, 1))
        # The memory is filled from behind.
        distances = graph.constant("distances", np.arange(self.left, 0, -1))
        is_past = graph.one("LessOrEqual", distances, graph.unsqueeze(past, 1))
        self.real_frames = graph.unsqueeze(is_frame, 2)
        self.real_keys = graph.unsqueeze(graph.one("Concat", is_past, is_frame, axis=1), 1, 2)

    def subsample(self, features: str) -> str:
        """From features [N, 4Q + 5, F] to [N, Q, D]; see `Subsampling`, or `Stacking` for those of a pretrained one."""
        graph, subsampling = self.graph, self.model.encoder.subsampling
        with graph.scope("subsampling"):
            if isinstance(subsampling, Stacking):
                width = subsampling.factor * self.model.encoder.framing.feature_dim
                x = graph.reshape(features, [0, self.size, width])
                return self.norm(linear(graph, "output", x, subsampling.output), subsampling.norm)
            x = graph.unsqueeze(features, 1)
            for part in subsampling.convolutions:
                assert isinstance(part, ScaledConv2d)
                weight, bias = graph.constant("weight", part.weight()), graph.constant("bias", part.bias())
                x = graph.one("Conv", x, weight, bias, pads=[*part.padding, *part.padding], strides=[part.stride] * 2)
                x = self.double_swish(x)
            # Channels last, as the linear layer wants them.
            x = graph.reshape(graph.one("Transpose", x, perm=[0, 2, 3, 1]), [0, 0, -1])
            return self.norm(linear(graph, "output", x, subsampling.output), subsampling.norm)

    def layer(self, layer: ConformerLayer, x: str, memory: str, history: str) -> tuple[str, str, str]:
        """From `x` [N, Q, D] and the caches before it to outputs [N, Q, D] and the caches after it."""
        add = self.graph.one
        x = add("Add", x, self.feed_forward("first_feedforward", layer.first_feedforward, x))
        attended, memory = self.attention(layer.attention, x, memory)
        x = add("Add", x, attended)
        convolved, history = self.convolution(layer.convolution, x, history)
        x = add("Add", x, convolved)
        x = add("Add", x, self.feed_forward("second_feedforward", layer.second_feedforward, x))
        return self.norm(x, layer.norm), memory, history

    def feed_forward(self, name: str, part: FeedForward, x: str) -> str:
        """See `FeedForward`."""
        with self.graph.scope(name):
            inner = self.double_swish(linear(self.graph, "input", x, part.input))
            return linear(self.graph, "output", inner, part.output)

    def attention(self, part: RelativeAttention, x: str, memory: str) -> tuple[str, str]:
        """See `RelativeAttention`; gives outputs [N, Q, D] and the memory [N, M, 2A] after them."""
        graph, width = self.graph, part.heads * part.head_dim
        with graph.scope("attention"):
            queries, of_chunk = graph.split(linear(graph, "input", x, part.input), [width, 2 * width], 2)
            everything = graph.one("Concat", memory, of_chunk, axis=1)
            keys, values = graph.split(everything, [width, width], 2)
            queries = graph.one("Mul", queries, graph.constant("scale", float(part.head_dim**-0.5)))
            by_content = graph.one("Add", queries, graph.constant("content_bias", part.content_bias()))
            by_position = graph.one("Add", queries, graph.constant("position_bias", part.position_bias()))
            scores = graph.one(
                "Add",
                graph.one("MatMul", self.by_head(part, by_content), self.by_head(part, keys, [0, 2, 3, 1])),
                self.position_scores(part, self.by_head(part, by_position)),
            )
            hidden = graph.constant("hidden", float(torch.finfo(torch.float32).min))
            weights = graph.one("Softmax", graph.one("Where", self.real_keys, scores, hidden), axis=-1)
            attended = graph.one("MatMul", weights, self.by_head(part, values))
            attended = graph.reshape(graph.one("Transpose", attended, perm=[0, 2, 1, 3]), [0, 0, width])
            remembered = graph.cut(everything, self.size, self.size + self.left, 1)
            return linear(graph, "output", attended, part.output), remembered

    def by_head(self, part: RelativeAttention, x: str, order: tuple[int, ...] | list[int] = (0, 2, 1, 3)) -> str:
        """From [N, T, A] to [N, H, T, A / H], or in another order of these."""
        return self.graph.one("Transpose", self.graph.reshape(x, [0, 0, part.heads, part.head_dim]), perm=list(order))

    def position_scores(self, part: RelativeAttention, queries: str) -> str:
        """Scores [N, H, Q, M + Q] by where a key is, of queries [N, H, Q, E]; see `model.attention.by_key`."""
        graph, size, keys = self.graph, self.size, self.left + self.size
        scores = graph.one("MatMul", queries, graph.constant("positions", self.positions(part)))
        if size == 1:
            return scores
        shorter = keys + size - 2
        flat = graph.cut(graph.reshape(scores, [0, 0, -1]), size - 1, size - 1 + size * shorter, 2)
        return graph.cut(graph.reshape(flat, [0, 0, size, shorter]), 0, keys, 3)

    def positions(self, part: RelativeAttention) -> Tensor:
        """What queries are multiplied with [1, H, E, M + 2Q - 1], by distance."""
        device = part.position.weight.value.device
        sinusoids = relative_positions(self.size, self.left + self.size, self.config.dim, device)
        return part.project_positions(sinusoids).transpose(1, 2).unsqueeze(0)

    def convolution(self, part: Convolution, x: str, history: str) -> tuple[str, str]:
        """See `Convolution`; gives outputs [N, Q, D] and the history [N, K - 1, D] after them."""
        graph, dim = self.graph, self.config.dim
        with graph.scope("convolution"):
            value, gate = graph.split(linear(graph, "input", x, part.input), [dim, dim], 2)
            x = graph.one("Mul", value, graph.one("Sigmoid", gate))
            x = graph.one("Where", self.real_frames, x, graph.constant("nothing", 0.0))
            x = graph.one("Concat", history, x, axis=1)
            remembered = graph.cut(x, self.size, self.size + part.kernel - 1, 1)
            weight = graph.constant("weight", part.depthwise().squeeze(2))
            bias = graph.constant("bias", part.depthwise_bias())
            x = graph.one("Conv", graph.one("Transpose", x, perm=[0, 2, 1]), weight, bias, group=dim)
            x = self.double_swish(graph.one("Transpose", x, perm=[0, 2, 1]))
            return linear(graph, "output", x, part.output), remembered

    def double_swish(self, x: str) -> str:
        """See `transducer_gn.model.activation.double_swish`."""
        graph = self.graph
        return graph.one("Mul", x, graph.one("Sigmoid", graph.one("Sub", x, graph.constant("one", 1.0))))

    def norm(self, x: str, part: BasicNorm) -> str:
        """See `BasicNorm`."""
        graph = self.graph
        mean = graph.one("ReduceMean", graph.one("Mul", x, x), axes=[-1], keepdims=1)
        return graph.one("Div", x, graph.one("Sqrt", graph.one("Add", mean, graph.constant("eps", part.log_eps.exp()))))


def linear(graph: GraphWriter, name: str, x: str, part: ScaledLinear) -> str:
    """A scaled linear layer with its scale multiplied out."""
    return graph.linear(name, x, part.weight(), None if part.bias is None else part.bias())
