"""How much memory an object keeps alive, and what becomes of memory that is freed."""

import ctypes

import torch
from torch import Tensor

# Parameters of glibc's mallopt, and what they are set to.
KEEPING = {
    -4: 0,  # M_MMAP_MAX: large pieces come from the heap, too, and not from the system, each by itself
    -1: 2**31 - 1,  # M_TRIM_THRESHOLD: the heap's end is given back only where it is larger than this
    -2: 2**26,  # M_TOP_PAD: the heap grows by no less
}


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


def keep_freed_memory() -> bool:
    """Have this process keep the memory that it frees for what it asks for next; gives whether it does now.

    Tensors of tens of megabytes come and go in every update. By default each comes from the system anew, which clears
    all of its pages first: a tenth to a third of the time of an update on a CPU.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(name, value) for name, value in KEEPING.items())


def release_freed_memory() -> None:
    """Give freed memory back to the system: what a process inherits of it from the one that started it is of no use."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
