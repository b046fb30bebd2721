"""How much memory an object keeps alive."""

import torch
from torch import Tensor


def held_bytes(thing: object) -> int:
    """Bytes of all tensors that an object holds, through attributes and containers, whole storages of views included.

    What belongs to modules is left out: parameters are shared by everything that uses a model.
    """
    storages: dict[int, int] = {}
    seen: set[int] = set()
    waiting = [thing]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, torch.nn.Module):
            continue
        seen.add(id(one))
        if isinstance(one, Tensor):
            storage = one.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
        elif isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list | tuple | set):
            waiting += one
        else:
            slots = (getattr(one, name, None) for name in getattr(type(one), "__slots__", ()))
            waiting += [*getattr(one, "__dict__", {}).values(), *slots]
    return sum(storages.values())
