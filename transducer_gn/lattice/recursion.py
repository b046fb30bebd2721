"""The score of a token sequence: log of the sum over all its alignments of the product of their weights.

This is the inner sum of the paper's equations for the locally and the globally normalised model alike; which of the
two it is depends only on the weights that come in. Gradients are the occupation probabilities of the arcs.

Backends, which agree to float tolerance:
  torch      diagonals in float64, any device (`diagonals.py`)
  k2         `k2.mutual_information_recursion`
  fast_rnnt  the same recursion as published alone
"""

import functools
import importlib
import math
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from transducer_gn.common.errors import NotFiniteError
from transducer_gn.lattice import diagonals

BACKENDS = ("torch", "k2", "fast_rnnt")
NOT_FINITE = ("token_weights holds NaN or +inf", "blank_weights holds NaN or +inf")


def sequence_scores(
    token_weights: Tensor,
    blank_weights: Tensor,
    token_lengths: Tensor,
    frame_lengths: Tensor,
    backend: str = "auto",
) -> Tensor:
    """Log-sum over all alignments of each token sequence.

    An alignment emits its U tokens in order, any number of them at each frame, and leaves every frame, the last
    included, by a blank. Without frames, only the empty sequence has an alignment, of score 0.

    Args:
        token_weights: [H, U, T] weight of emitting token u at frame t; any real, or -inf
        blank_weights: [H, U + 1, T] weight of leaving frame t after u tokens; any real, or -inf
        token_lengths: [H] number of tokens of each sequence; weights beyond are ignored
        frame_lengths: [H] number of frames of each sequence; weights beyond are ignored
        backend: "torch", "k2", "fast_rnnt" or "auto"

    Returns:
        [H] scores in the dtype of the weights, -inf (with zero gradient) where there is no alignment
    """
    check_lattice(token_weights, blank_weights, token_lengths, frame_lengths)
    name = resolve_backend(backend, token_weights.device)
    token_lengths, frame_lengths = (x.to(token_weights.device, torch.int64) for x in (token_lengths, frame_lengths))
    if token_weights.shape[0] == 0 or token_weights.shape[2] == 0:
        return _without_frames(token_weights, blank_weights, token_lengths)
    if name == "torch":
        return _TorchRecursion.apply(token_weights, blank_weights, token_lengths, frame_lengths)
    return _K2Recursion.apply(token_weights, blank_weights, token_lengths, frame_lengths, _import_backend(name))


def resolve_backend(backend: str, device: torch.device) -> str:
    """The backend that a setting means on a device: "auto" is the fastest one that imports and has kernels for it.

    Measured on a CPU, k2's and fast_rnnt's serial loops are as fast as each other and faster than diagonals of torch
    operations: 7 times for a single sequence, still 1.3 times for a hundred.
    """
    if backend != "auto":
        if backend not in BACKENDS:
            raise ValueError(f"backend is {backend!r}; it must be 'auto' or one of {', '.join(BACKENDS)}")
        if backend != "torch":
            _import_backend(backend)
        return backend
    return next((name for name in ("k2", "fast_rnnt") if _has_kernels(name, device.type)), "torch")


def check_lattice(token_weights: Tensor, blank_weights: Tensor, token_lengths: Tensor, frame_lengths: Tensor) -> None:
    """Raise ValueError naming the argument that does not fit the others, `NotFiniteError` for what no weight can be.

    Waits for the device once.
    """
    if token_weights.dim() != 3 or blank_weights.dim() != 3:
        raise ValueError(
            "token_weights must be [H, U, T] and blank_weights [H, U + 1, T]; they have shapes "
            f"{list(token_weights.shape)} and {list(blank_weights.shape)}"
        )
    sequences, tokens, frames = token_weights.shape
    if list(blank_weights.shape) != [sequences, tokens + 1, frames]:
        raise ValueError(
            f"blank_weights has shape {list(blank_weights.shape)}, but token_weights {list(token_weights.shape)} "
            f"needs {[sequences, tokens + 1, frames]}"
        )
    if token_weights.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"token_weights is {token_weights.dtype}; it must be float32 or float64")
    if blank_weights.dtype != token_weights.dtype or blank_weights.device != token_weights.device:
        raise ValueError("blank_weights must have the dtype and device of token_weights")
    for name, lengths in (("token_lengths", token_lengths), ("frame_lengths", frame_lengths)):
        if list(lengths.shape) != [sequences] or lengths.dtype.is_floating_point:
            raise ValueError(f"{name} must be {sequences} integers, one for each sequence of token_weights")
    if sequences == 0:
        return
    faults = {
        f"token_lengths must be between 0 and {tokens}": ((token_lengths < 0) | (token_lengths > tokens)).any(),
        f"frame_lengths must be between 0 and {frames}": ((frame_lengths < 0) | (frame_lengths > frames)).any(),
        NOT_FINITE[0]: _not_weights(token_weights),
        NOT_FINITE[1]: _not_weights(blank_weights),
    }
    flags = torch.stack([flag.to(token_weights.device) for flag in faults.values()]).tolist()
    for sentence, flag in zip(faults, flags, strict=True):
        if flag:
            raise NotFiniteError(sentence) if sentence in NOT_FINITE else ValueError(sentence)


def _not_weights(weights: Tensor) -> Tensor:
    """Whether any entry is NaN or +inf, as a scalar tensor; one pass, no copy of the weights."""
    if weights.numel() == 0:
        return torch.zeros((), dtype=torch.bool, device=weights.device)
    return ~(weights.detach().amax() < math.inf)


def _without_frames(token_weights: Tensor, blank_weights: Tensor, token_lengths: Tensor) -> Tensor:
    """[H] scores where no sequence has a frame, still attached to the graph."""
    nothing = token_weights.sum() + blank_weights.sum()
    return torch.where(token_lengths == 0, 0.0, -math.inf).to(token_weights.dtype) + nothing


class _TorchRecursion(torch.autograd.Function):
    """Diagonals forward; occupations backward, from the saved forward sums."""

    @staticmethod
    def forward(
        ctx: Any, token_weights: Tensor, blank_weights: Tensor, token_lengths: Tensor, frame_lengths: Tensor
    ) -> Tensor:
        forward, by_blank = diagonals.forward_diagonals(*diagonals.skewed_arcs(token_weights, blank_weights))
        last, sequences, rows = diagonals.final_points(token_lengths, frame_lengths)
        final_blanks = blank_weights[sequences, rows, (frame_lengths - 1).clamp(min=0)]
        scores = forward[last, sequences, rows] + final_blanks
        absent = torch.where(token_lengths == 0, 0.0, -math.inf).to(scores)
        scores = torch.where(frame_lengths > 0, scores, absent)
        ctx.save_for_backward(forward, by_blank, token_lengths, frame_lengths, scores)
        ctx.frames, ctx.dtype = token_weights.shape[2], token_weights.dtype
        return scores.to(token_weights.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_scores: Tensor) -> tuple[Tensor, Tensor, None, None]:
        forward, by_blank, token_lengths, frame_lengths, scores = ctx.saved_tensors
        reachable = (frame_lengths > 0) & (scores > -math.inf)
        grad_scores = torch.where(reachable, grad_scores.double(), 0.0)
        seeds = torch.zeros_like(forward)
        last, sequences, rows = diagonals.final_points(token_lengths, frame_lengths)
        seeds[last, sequences, rows] = grad_scores
        shares = diagonals.arrival_shares(forward, by_blank)
        token_arcs, blank_arcs = diagonals.occupations(*shares, seeds, ctx.frames)
        blank_grads = blank_arcs.points.to(ctx.dtype)
        blank_grads[sequences, rows, (frame_lengths - 1).clamp(min=0)] += grad_scores.to(ctx.dtype)
        return token_arcs.points[:, :-1].to(ctx.dtype), blank_grads, None, None


class _K2Recursion(torch.autograd.Function):
    """The recursion of k2 or fast_rnnt, which yields its gradients together with the scores."""

    @staticmethod
    def forward(
        ctx: Any,
        token_weights: Tensor,
        blank_weights: Tensor,
        token_lengths: Tensor,
        frame_lengths: Tensor,
        module: ModuleType,
    ) -> Tensor:
        sequences, _, frames = token_weights.shape
        # k2 knows one more column: tokens after the last blank. Ours end with a blank, so no token starts there.
        arrivals = torch.nn.functional.pad(token_weights, (0, 1), value=-math.inf)
        beyond = torch.arange(frames + 1, device=arrivals.device) >= frame_lengths[:, None, None]
        arrivals = arrivals.masked_fill(beyond, -math.inf)
        boundary = torch.zeros(sequences, 4, dtype=torch.int64, device=arrivals.device)
        boundary[:, 2], boundary[:, 3] = token_lengths, frame_lengths
        scores, (token_grads, blank_grads) = module.mutual_information_recursion(
            arrivals.contiguous(), blank_weights.contiguous(), boundary, return_grad=True
        )
        ctx.save_for_backward(token_grads[:, :, :-1], blank_grads, scores > -math.inf)
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_scores: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        token_grads, blank_grads, reachable = ctx.saved_tensors
        # For unreachable rows k2's gradients mean nothing (they can be NaN), so select rather than multiply.
        scale, reachable = grad_scores[:, None, None], reachable[:, None, None]
        token_grads, blank_grads = (torch.where(reachable, x * scale, 0) for x in (token_grads, blank_grads))
        return token_grads, blank_grads, None, None, None


def _import_backend(name: str) -> ModuleType:
    """Import k2 or fast_rnnt, or say how to do without."""
    module = _try_import(name)
    if isinstance(module, Exception):
        raise ValueError(
            f"backend is {name!r}, but it does not import ({module}); install {name} built for this torch, "
            "or set the backend to 'torch'"
        ) from module
    return module


@functools.cache
def _try_import(name: str) -> ModuleType | Exception:
    """A module, or why there is none; asked at every call of the recursion, so looked up once."""
    try:
        module = importlib.import_module(name)
    except (ImportError, OSError) as error:  # a build for another torch fails to load its library
        return error
    # Any folder named k2 on the path imports as an empty package: a checkout of its sources beside a script, say.
    if not hasattr(module, "mutual_information_recursion"):
        return ImportError(f"{name} from {module} has no mutual_information_recursion")
    return module


def _has_kernels(name: str, device_type: str) -> bool:
    """Whether a backend imports and was built for a kind of device."""
    module = _try_import(name)
    if isinstance(module, Exception):
        return False
    # A constant in k2, a function in fast_rnnt.
    with_cuda = getattr(module, "with_cuda", False)
    return device_type == "cpu" or (device_type == "cuda" and bool(with_cuda() if callable(with_cuda) else with_cuda))
