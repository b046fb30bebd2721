"""A stand-in for a second device: on a machine without a GPU it tells which tensors would be on one.

Tensors count as being on the second device once they are moved there; what is computed from them stays there; what is
made with an explicit device (such as that of another tensor) is there too. Whatever mixes them with tensors that are
not there raises, as it would on a real GPU. Scalars may be mixed, as torch allows.
"""

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

# Calls that look at a tensor without computing with it.
LOOKS = {
    "__get__",
    "size",
    "dim",
    "numel",
    "stride",
    "untyped_storage",
    "is_floating_point",
    "storage_offset",
    "__len__",
}
# Calls that bring values to the host.
TO_HOST = {"cpu", "tolist", "item", "__bool__", "__float__", "__int__", "numpy"}


class SecondDevice(TorchFunctionMode):
    """Follows tensors through a block.

    Attributes:
        waits: names of calls that made the host wait for the second device, in order
    """

    def __init__(self):
        super().__init__()
        self._there: dict[int, torch.UntypedStorage] = {}  # kept alive, so that no address is used twice
        self.waits: list[str] = []

    def move(self, tensor: torch.Tensor) -> torch.Tensor:
        """Count a tensor as moved."""
        with torch._C.DisableTorchFunction():
            storage = tensor.untyped_storage()
        self._there[storage._cdata] = storage
        return tensor

    def has(self, tensor: torch.Tensor) -> bool:
        with torch._C.DisableTorchFunction():
            return tensor.untyped_storage()._cdata in self._there

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(function, "__name__", str(function))
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        there = [self.has(x) for x in tensors]
        if name in LOOKS:
            return self._result(function(*args, **kwargs), any(there))
        if name in TO_HOST:
            if any(there):
                self.waits.append(name)
            result = function(*args, **kwargs)
            return result.clone() if name == "cpu" else result
        if name == "to":
            return self._to(function, args, kwargs, there[0])
        self._check(name, tensors, there)
        explicit = not tensors and kwargs.get("device") is not None
        return self._result(function(*args, **kwargs), any(there) or explicit)

    def _to(self, function, args, kwargs, was_there):
        rest = (*args[1:], *kwargs.values())
        named = any(isinstance(x, (torch.device, str)) for x in rest) or any(
            isinstance(x, torch.Tensor) and self.has(x) for x in rest
        )
        result = function(*args, **kwargs)
        # On a real device this would be a copy; here it may be the same tensor, which must not drag the original along.
        return self.move(result.clone()) if named and not was_there else self._result(result, was_there)

    def _check(self, name, tensors, there):
        mixed = [x for x, is_there in zip(tensors, there, strict=True) if not is_there and x.dim() > 0]
        if any(there) and mixed:
            raise AssertionError(
                f"{name} mixes the second device with tensors of shapes {[tuple(x.shape) for x in mixed]}"
            )

    def _result(self, result, there):
        if there:
            for x in tree_leaves(result):
                if isinstance(x, torch.Tensor):
                    self.move(x)
        return result
