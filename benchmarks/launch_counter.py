"""Counts what torch dispatches: operations, waits for the device, bytes and multiplications, part by part.

How an operation is counted:
  - Views, and numbers of the host, are not. Everything else that is dispatched counts once, as a *launch*.
  - Composite operations count once, too. `KERNELS` says how many kernels a GPU makes of them; that number is used where
    times are predicted, and nowhere else.
  - The reverse, several operations here that are one there, does not occur but for LSTM cells: in a search these are
    four operations per layer here and one call of cuDNN there, and count as four.
  - A *wait* is an operation that makes the host wait for a value: `.item()`, `bool()`, `.tolist()`, `.cpu()`, indexing
    by a mask and whatever else must know values to know its shape. Those of the latter kind are launches as well.
  - Bytes are those of all arguments and all results; of tables that are only looked up, what is looked up.
  - Multiplications are those of matrix products and convolutions, as `torch.utils.flop_counter` counts them.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

# Operations that bring a value to the host and compute nothing.
LOOKS = {"aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero"}
# Operations that compute, and make the host wait since the shape of their result depends on values.
WAITS = {"aten::nonzero", "aten::bincount", "aten::masked_select", "aten::_unique2", "aten::unique_consecutive"}
# Calls that read a whole tensor without dispatching anything.
READS = {"tolist", "cpu"}
# Operations that only look like ones that compute.
NOTHING = {"aten::detach", "aten::alias", "aten::lift_fresh", "aten::_unsafe_view", "aten::_reshape_alias"}
# Memory without values.
NOTHING |= {f"aten::{name}" for name in ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")}
INDEXED = {"aten::index", "aten::index_put_", "aten::_index_put_impl_"}
# Of the first argument of these, only as much is read or written as of the others.
LOOKED_UP = {"aten::index_select", "aten::gather", "aten::embedding", "aten::index"}
ADDED_TO = {"aten::index_add_", "aten::scatter_add_", "aten::index_put_", "aten::index_copy_", "aten::scatter_"}
# Kernels that CUDA makes of one operation: read in torch's sources as far as these tell, else estimated.
KERNELS = {
    "aten::logsumexp": 7,  # largest, mask, fill, subtract, exp, sum, log and add
    "aten::topk": 3,
    "aten::sort": 4,
    "aten::argsort": 4,
    "aten::nonzero": 3,
    "aten::bincount": 4,
    "aten::cumsum": 2,
    "aten::scatter": 2,  # a copy, then what is written to it
    "aten::index_put_": 2,
    "aten::convolution_backward": 3,
}
# Lists of tensors: so many tensors, and so many chunks of elements, fit into one launch.
LIST_TENSORS, LIST_CHUNKS, CHUNK = 48, 320, 1 << 16


@dataclass(frozen=True)
class Operation:
    """One operation: its name, kernels of a GPU, bytes and multiplications."""

    name: str
    kernels: int
    bytes: int
    multiplications: int


@dataclass
class Part:
    """What a part of an update dispatches; parts can be added up, and multiplied by a share.

    Attributes:
        operations: those that compute, in order
        waits: number of operations by name that make the host wait
        share: how much of all this counts
    """

    operations: list[Operation] = field(default_factory=list)
    waits: Counter[str] = field(default_factory=Counter)
    share: float = 1.0

    @property
    def launches(self) -> float:
        """Number of operations."""
        return len(self.operations) * self.share

    def summary(self) -> dict[str, float]:
        """Totals, for a table."""
        return {
            "launches": self.launches,
            "kernels": self.share * sum(x.kernels for x in self.operations),
            "waits": self.share * self.waits.total(),
            "bytes": self.share * sum(x.bytes for x in self.operations),
            "multiplications": self.share * sum(x.multiplications for x in self.operations),
        }

    def by_operation(self) -> dict[str, int]:
        """Number of operations by name, the most frequent first."""
        return dict(Counter(x.name for x in self.operations).most_common())


class _Reads(TorchFunctionMode):
    """Sees calls that read tensors without dispatching."""

    def __init__(self, counter: "LaunchCounter") -> None:
        super().__init__()
        self._counter = counter

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        # A single number is dispatched, and counted there.
        if name in READS and args[0].dim() > 0 and self._counter.is_counted(args[0]):
            self._counter.current.waits[name] += 1
        return function(*args, **(kwargs or {}))


class LaunchCounter(TorchDispatchMode):
    """Counts what is dispatched while it is entered.

    Args:
        device: kind of the tensors whose operations count, such as "meta"; all if None

    Attributes:
        parts: what was counted, by part
        current: the part that is counted now
    """

    def __init__(self, device: str | None = None) -> None:
        super().__init__()
        self.parts: dict[str, Part] = {}
        self._device = device
        self._name = ""
        self._reads = ExitStack()
        self.enter("all")

    def enter(self, name: str) -> str:
        """Count for part `name` from now on; gives the name of the part before."""
        before, self._name = self._name, name
        self.current = self.parts.setdefault(name, Part())
        return before

    def is_counted(self, tensor: Tensor) -> bool:
        """Whether operations on a tensor count."""
        return self._device is None or tensor.device.type == self._device

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the block for part `name`."""
        before = self.enter(name)
        yield
        self.enter(before)

    def __enter__(self) -> "LaunchCounter":
        self._reads.enter_context(_Reads(self))
        super().__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self._reads.close()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        self._count(function, args, kwargs, result)
        return result

    def _count(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        name = function.name().split(".")[0]
        read = [x for x in tree_leaves((args, kwargs | {"out": None})) if isinstance(x, Tensor)]
        written = [x for x in tree_leaves(result) if isinstance(x, Tensor)]
        if not any(self.is_counted(x) for x in read + written):
            return
        if name in LOOKS or name in WAITS or _looks_inside(name, args, kwargs):
            self.current.waits[name] += 1
        if name in LOOKS or name in NOTHING or function.is_view:
            return
        products = _multiplications(function, args, kwargs, result)
        kernels = _list_kernels(args) if "_foreach" in name else KERNELS.get(name, 1)
        self.current.operations.append(Operation(name, kernels, _bytes(name, read, written), products))


def _looks_inside(name: str, args: Any, kwargs: Any) -> bool:
    """Whether an operation must know values: indexing by a mask, or repeating without knowing how often in all."""
    if name in INDEXED:
        return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    return name == "aten::repeat_interleave" and kwargs.get("output_size") is None


def _multiplications(function: Any, args: Any, kwargs: Any, result: Any) -> int:
    """Those of matrix products and convolutions."""
    if function.overloadpacket is torch.ops.aten.mkldnn_rnn_layer:
        x, input_weight, state_weight = args[:3]
        return x.shape[0] * x.shape[1] * (input_weight.numel() + state_weight.numel())
    packet = torch.ops.aten.addmm if function.overloadpacket is torch.ops.aten.addmm_ else function.overloadpacket
    formula = flop_registry.get(packet)
    return formula(*args, **kwargs, out_val=result) // 2 if formula else 0


def _bytes(name: str, read: list[Tensor], written: list[Tensor]) -> int:
    if name in ADDED_TO:
        # Read, written and added: each as large as the largest of what is added.
        return 3 * max((_size(x) for x in read[1:]), default=0)
    if name in LOOKED_UP:
        return 2 * sum(map(_size, written)) + sum(map(_size, read[1:]))
    return sum(map(_size, read + written))


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _list_kernels(args: Any) -> int:
    """Kernels for an operation on a list of tensors."""
    tensors = args[0]
    chunks = sum(math.ceil(x.numel() / CHUNK) for x in tensors)
    return max(math.ceil(len(tensors) / LIST_TENSORS), math.ceil(chunks / LIST_CHUNKS))


def count(run: Callable[[], object]) -> Part:
    """What a call dispatches."""
    with LaunchCounter() as counter:
        run()
    return counter.parts["all"]
