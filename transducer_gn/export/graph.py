"""Writing ONNX graphs operation by operation.

Graphs are written and not traced: a tracer takes sizes for constants wherever Python looked at one, and then the file
runs at that size alone. Here the batch is a variable by construction, and operations have names that can be read.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

# Read by every runtime of the last years.
OPSET = 17
IR_VERSION = 8
# The size that is never fixed.
BATCH = "N"
TYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "int64": TensorProto.INT64}

Shape = Sequence[int | str]


class GraphWriter:
    """A graph under construction. Values are known by their names."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._scope: list[str] = []

    def scope(self, name: str) -> "Scope":
        """A block in which names of constants and operations begin with `name`."""
        return Scope(self._scope, name)

    def input(self, name: str, shape: Shape, kind: str = "float32") -> str:
        """An input of the graph."""
        self._inputs.append(helper.make_tensor_value_info(name, TYPES[kind], list(shape)))
        return name

    def output(self, name: str, value: str, shape: Shape, kind: str = "float32") -> None:
        """Let a value be an output of the graph under a name."""
        self._nodes.append(helper.make_node("Identity", [value], [name], name=f"to {name}"))
        self._outputs.append(helper.make_tensor_value_info(name, TYPES[kind], list(shape)))

    def constant(self, name: str, value: Tensor | np.ndarray | Sequence[int] | float) -> str:
        """A constant; lists are whole numbers, single numbers and tensors floats."""
        if isinstance(value, Tensor):
            value = value.detach().cpu().float().numpy()
        elif isinstance(value, float):
            value = np.array(value, dtype=np.float32)
        full = self._unique(name, len(self._constants))
        self._constants.append(numpy_helper.from_array(np.array(value, order="C"), full))
        return full

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> list[str]:
        """An operation with several outputs; gives their names."""
        name = self._unique(kind, len(self._nodes))
        names = [f"{name}:{number}" for number in range(outputs)]
        self._nodes.append(helper.make_node(kind, list(inputs), names, name=name, **attributes))
        return names

    def one(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """An operation with one output; gives its name."""
        return self.op(kind, *inputs, **attributes)[0]

    def linear(self, name: str, x: str, weight: Tensor, bias: Tensor | None = None) -> str:
        """From `x` [..., inputs] to [..., outputs] by a `weight` [outputs, inputs] and a `bias` [outputs]."""
        with self.scope(name):
            product = self.one("MatMul", x, self.constant("weight", weight.t()))
            return product if bias is None else self.one("Add", product, self.constant("bias", bias))

    def split(self, x: str, sizes: Sequence[int], axis: int) -> list[str]:
        """Consecutive parts of `x` along an axis."""
        return self.op("Split", x, self.constant("sizes", list(sizes)), outputs=len(sizes), axis=axis)

    def cut(self, x: str, start: int, end: int, axis: int) -> str:
        """The part of `x` from `start` to before `end` along an axis."""
        bounds = [self.constant(name, [value]) for name, value in (("start", start), ("end", end), ("axis", axis))]
        return self.one("Slice", x, *bounds)

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        """The values of `x` in another shape, in which 0 keeps a size and -1 stands for what is left."""
        return self.one("Reshape", x, self.constant("shape", list(shape)))

    def cast(self, x: str, kind: str) -> str:
        """The values of `x` as another type."""
        return self.one("Cast", x, to=TYPES[kind])

    def unsqueeze(self, x: str, *axes: int) -> str:
        """The values of `x` with new dimensions of size 1."""
        return self.one("Unsqueeze", x, self.constant("axes", list(axes)))

    def model(self, properties: Mapping[str, str]) -> onnx.ModelProto:
        """The finished graph, checked, with properties that runtimes can read."""
        graph = helper.make_graph(self._nodes, self.name, self._inputs, self._outputs, self._constants)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="transducer_gn"
        )
        helper.set_model_props(model, dict(properties))
        onnx.checker.check_model(model, full_check=True)
        return model

    def _unique(self, name: str, number: int) -> str:
        return "/".join([*self._scope, f"{name}.{number}"])


class Scope:
    """A block of a graph with a name of its own."""

    def __init__(self, scopes: list[str], name: str) -> None:
        self._scopes = scopes
        self._name = name

    def __enter__(self) -> None:
        self._scopes.append(self._name)

    def __exit__(self, *error: object) -> None:
        self._scopes.pop()
