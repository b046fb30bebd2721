"""Full precision inside autocast and for half-precision values."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def full_precision(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Run a function with autocast off, on the host and on an accelerator if there is one.

    The caller still casts half-precision arguments itself, as only it knows which ones are activations.
    """

    @wraps(function)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        devices = [device for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
        if not devices:
            return function(*args, **kwargs)
        with ExitStack() as stack:
            for device in devices:
                stack.enter_context(torch.autocast(device, enabled=False))
            return function(*args, **kwargs)

    return run


def at_least_float32(x: Tensor) -> Tensor:
    """`x` [...] itself, or in float32 if it is in half precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
