"""The predictor's step and the joiner as graphs.

The predictor's outputs come out projected for the joiner, as the encoder's frames do. The joiner's weights are the
interpolated ones, `logits - alpha * log_sums`: what a search adds up as it is, without any normalisation of its own.
"""

import torch

from transducer_gn.export.encoder_graph import linear
from transducer_gn.export.graph import BATCH, GraphWriter
from transducer_gn.lattice.interpolation import Interpolation
from transducer_gn.model.joiner import Joiner
from transducer_gn.model.predictor import FiniteStatePredictor, LstmPredictor
from transducer_gn.model.transducer import Transducer


def write_predictor(model: Transducer) -> GraphWriter:
    """The graph of a predictor's step: one token per row and the state before it, to an output and the state after."""
    graph = GraphWriter("predictor_step")
    predictor = model.predictor
    tokens = graph.input("tokens", [BATCH], "int64")
    with torch.no_grad():
        output = (
            _lstm(graph, predictor, tokens)
            if isinstance(predictor, LstmPredictor)
            else _finite_state(graph, predictor, tokens)
        )
        projected = linear(graph, "joiner", output, model.joiner.predictor_projection)
    graph.output("projected_prefix", projected, [BATCH, len(model.joiner.output_weight[0])])
    return graph


def _lstm(graph: GraphWriter, predictor: LstmPredictor, tokens: str) -> str:
    """Outputs [N, D]; the state is `hidden` and `cell`, each [N, layers, D]."""
    lstm = predictor.lstm
    layers, dim = len(lstm.layers), lstm.dim
    state = [graph.input(name, [BATCH, layers, dim]) for name in ("hidden", "cell")]
    x = graph.one("Gather", graph.constant("embedding", predictor.embedding.weight()), tokens)
    after: list[list[str]] = [[], []]
    for number, layer in enumerate(lstm.stack()):
        with graph.scope(f"layer{number}"):
            hidden, cell = (graph.reshape(graph.cut(part, number, number + 1, 1), [0, dim]) for part in state)
            gates = graph.one(
                "Add",
                graph.linear("input", x, layer.input_weight(), layer.bias()),
                graph.linear("state", hidden, layer.state_weight()),
            )
            add, keep, candidate, show = graph.split(gates, [dim] * 4, 1)
            kept = graph.one("Mul", graph.one("Sigmoid", keep), cell)
            added = graph.one("Mul", graph.one("Sigmoid", add), graph.one("Tanh", candidate))
            cell = graph.one("Add", kept, added)
            x = graph.one("Mul", graph.one("Sigmoid", show), graph.one("Tanh", cell))
            for values, value in zip(after, (x, cell), strict=True):
                values.append(graph.unsqueeze(value, 1))
    for name, values in zip(("hidden", "cell"), after, strict=True):
        graph.output(f"new_{name}", graph.one("Concat", *values, axis=1), [BATCH, layers, dim])
    return linear(graph, "output", x, predictor.output)


def _finite_state(graph: GraphWriter, predictor: FiniteStatePredictor, tokens: str) -> str:
    """Outputs [N, D]; the state is `context`, the tokens [N, context - 1] before the one to come."""
    context = graph.input("context", [BATCH, predictor.context - 1], "int64")
    read = graph.one("Concat", context, graph.unsqueeze(tokens, 1), axis=1)
    graph.output("new_context", graph.cut(read, 1, predictor.context, 1), [BATCH, predictor.context - 1], "int64")
    vectors = graph.one("Gather", graph.constant("embedding", predictor.embedding.weight()), read)
    mixed = graph.one("Mul", vectors, graph.constant("mixing", predictor.mixing()))
    summed = graph.one("ReduceSum", mixed, graph.constant("axes", [1]), keepdims=0)
    return graph.one("Relu", summed)


def write_joiner(joiner: Joiner, interpolation: Interpolation) -> GraphWriter:
    """The graph of the joiner: from frame and prefix to the interpolated weights of all labels, and their log-sum."""
    graph = GraphWriter("joiner")
    with torch.no_grad():
        output = joiner.output_layer
    vocabulary, width = output.weight.shape
    frame, prefix = (graph.input(name, [BATCH, width]) for name in ("projected_frame", "projected_prefix"))
    hidden = graph.one("Tanh", graph.one("Add", frame, prefix))
    logits = graph.linear("output", hidden, output.weight, output.bias)
    log_sums = graph.one("ReduceLogSumExp", logits, axes=[-1], keepdims=1)
    subtracted = graph.one("Mul", log_sums, graph.constant("alpha", float(interpolation.alpha)))
    graph.output("weights", graph.one("Sub", logits, subtracted), [BATCH, vocabulary])
    graph.output("log_sums", graph.reshape(log_sums, [-1]), [BATCH])
    return graph
