"""Moonshine tiny's encoder, read from the ONNX file that its authors published.

The exporter named matrices by number, but every operation after the module that it came from: the MatMul called
/layers.0/self_attn/q_proj/MatMul reads the weight of layers.0.self_attn.q_proj. Parameters are found by that.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from transducer_gn.common.errors import UserError
from transducer_gn.common.stages import file_fingerprint
from transducer_gn.model.moonshine import MOONSHINE_TINY, MoonshineEncoder, MoonshineShape
from transducer_gn.model.onnx_file import Graph, read_graph

PACKAGE = "@usefulsensors/moonshine-js@0.1.2"
FILE_IN_PACKAGE = "dist/model/tiny/float/encoder_model.onnx"
# Checksum (SHA-256) of that file.
PUBLISHED = "cbbf580f703b2af2137e0f6d14cd87f31cc67bd858bfd8715403a9489982d1a5"
HOW_TO_GET_IT = f"`npm pack {PACKAGE}` gives an archive in which package/{FILE_IN_PACKAGE} is the encoder"

# The published modules and ours.
MODULES = {
    "conv1": "wave",
    "groupnorm": "norm",
    "conv2": "second",
    "conv3": "third",
    "input_layernorm": "attention_norm",
    "self_attn.q_proj": "attention.query",
    "self_attn.k_proj": "attention.key",
    "self_attn.v_proj": "attention.value",
    "self_attn.dense": "attention.output",
    "post_attention_layernorm": "feedforward_norm",
    "mlp.fc1": "feedforward.0",
    "mlp.fc2": "feedforward.2",
    "layer_norm": "output_norm",
}


def read_moonshine_tiny(path: Path) -> MoonshineEncoder:
    """Return the published encoder in evaluation mode; any other file is a `UserError`."""
    if not path.is_file():
        raise UserError(f"{path}: there is no such file; {HOW_TO_GET_IT}")
    encoder = encoder_of_graph(read_graph(path), MOONSHINE_TINY, str(path))
    if file_fingerprint(path) != PUBLISHED:
        raise UserError(f"{path}: shaped as {MOONSHINE_TINY.name}, but not the published file; {HOW_TO_GET_IT}")
    return encoder


def encoder_of_graph(graph: Graph, shape: MoonshineShape, file: str) -> MoonshineEncoder:
    """Return an encoder of the given shape with the graph's weights.

    Args:
        graph: nodes and weights of a file
        shape: what the encoder should be
        file: the file's name, for errors
    """
    parameters = parameters_of_graph(graph)
    encoder = MoonshineEncoder(shape).eval()
    wanted = encoder.state_dict()
    for name, tensor in wanted.items():
        if name not in parameters:
            raise UserError(f"{file}: this is not {shape.name} in 32-bit numbers: it has no {name}; {HOW_TO_GET_IT}")
        found = parameters[name]
        if found.shape != tensor.shape:
            raise UserError(
                f"{file}: this is not {shape.name}: its {name} is {_by(found)}, not {_by(tensor)}; {HOW_TO_GET_IT}"
            )
    surplus = sorted(set(parameters) - set(wanted))
    if surplus:
        raise UserError(f"{file}: this is not {shape.name}: it has a {surplus[0]}, too; {HOW_TO_GET_IT}")
    encoder.load_state_dict(parameters)
    return encoder


def parameters_of_graph(graph: Graph) -> dict[str, Tensor]:
    """Return the parameters of all modules in a graph, by our names."""
    parameters: dict[str, Tensor] = {}
    for node in graph.nodes:
        module = _module(node.name)
        weights = [graph.weights[name] for name in node.inputs if name in graph.weights]
        # What is left out are constants of the formulas, single numbers each.
        weights = [weight for weight in weights if weight.size > 1]
        if module is None or not weights:
            continue
        if node.operation == "Conv":
            parameters |= {f"{module}.{part}": _tensor(w) for part, w in zip(("weight", "bias"), weights, strict=False)}
        elif node.operation == "MatMul":
            parameters[f"{module}.weight"] = _tensor(weights[0].T)
        elif node.operation in ("Mul", "Add"):
            parameters[f"{module}.{'weight' if node.operation == 'Mul' else 'bias'}"] = _tensor(weights[0].ravel())
    return parameters


def _module(node: str) -> str | None:
    """Our name of the module that a node called /layers.0/mlp/fc1/MatMul came from, or None for what has no weights."""
    path = ".".join(node.strip("/").split("/")[:-1])
    layer, rest = "", path
    if path.startswith("layers."):
        _, number, rest = (*path.split(".", 2), "")[:3]
        layer = f"layers.{number}."
    return f"{layer}{MODULES[rest]}" if rest in MODULES else None


def _tensor(weight: np.ndarray) -> Tensor:
    return torch.from_numpy(np.array(weight, dtype=np.float32, order="C"))


def _by(tensor: Tensor) -> str:
    return " x ".join(str(size) for size in tensor.shape)
