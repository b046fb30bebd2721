"""The joiner on tensors: logits = W tanh(a + b) + c, with its derivative. Both stand here and nowhere else.

`a` is a projected encoder frame, `b` a projected prefix, each of J numbers. tanh(a + b) is the *hidden vector* of their
lattice point; the output layer, W and c, makes its V raw weights. The model's joiner, dense lattices, tiles and chosen
points all compute them by these functions, and differ only in which points they lay out, where, and for how long.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from transducer_gn.common import quick


def hidden_vectors(frames: Tensor, prefixes: Tensor, out: Tensor | None = None) -> Tensor:
    """tanh(frames + prefixes).

    Args:
        frames: [..., J] projected encoder frames
        prefixes: [..., J] projected prefixes, which broadcast against the frames
        out: [..., J] where to write them; a new tensor, which autograd can follow, where None

    Returns:
        [..., J] hidden vectors
    """
    if out is None:
        return (frames + prefixes).tanh_()
    return quick.tanh_(torch.add(frames, prefixes, out=out))


def to_sums_gradient(hidden_grad: Tensor, hidden: Tensor) -> Tensor:
    """Backpropagate through tanh: from the gradient of hidden vectors to that of the sums `frames + prefixes`.

    Args:
        hidden_grad: [..., J] gradient of the hidden vectors; overwritten with the result
        hidden: [..., J] hidden vectors; overwritten with their squares

    Returns:
        [..., J] gradient of the sums, in the memory of `hidden_grad`
    """
    return hidden_grad.addcmul_(hidden_grad, hidden.mul_(hidden), value=-1)


@dataclass(frozen=True)
class OutputLayer:
    """From hidden vectors to raw weights.

    Attributes:
        weight: [V, J]
        bias: [V]
    """

    weight: Tensor
    bias: Tensor

    def zeros_like(self) -> "OutputLayer":
        """Zeros of the same shapes, for gradients to be added to."""
        return OutputLayer(torch.zeros_like(self.weight), torch.zeros_like(self.bias))

    def logits(self, hidden: Tensor, out: Tensor | None = None) -> Tensor:
        """Raw weights of all V labels.

        Args:
            hidden: [..., J] hidden vectors
            out: [..., V] where to write them; a new tensor, which autograd can follow, where None

        Returns:
            [..., V] raw weights
        """
        if out is None:
            return functional.linear(hidden, self.weight, self.bias)
        quick.affine(hidden.flatten(0, -2), self.weight, self.bias, out.flatten(0, -2))
        return out

    def backpropagate(self, grad: Tensor, hidden: Tensor, sums: "OutputLayer", out: Tensor | None = None) -> Tensor:
        """Add to the gradients of the layer, and pass on that of the hidden vectors.

        Args:
            grad: [..., V] gradient of the raw weights
            hidden: [..., J] hidden vectors
            sums: gradients of the layer, added to
            out: [n, J] where to write the result, for n points in all; a new tensor where None

        Returns:
            [n, J] gradient of the hidden vectors
        """
        flat = grad.flatten(0, -2)
        quick.add_product(sums.weight, flat, hidden.flatten(0, -2))
        sums.bias.add_(flat.sum(0))
        out = flat.new_empty(len(flat), self.weight.shape[1]) if out is None else out
        return quick.affine(flat, self.weight.t(), None, out)


def joint_logits(frames: Tensor, prefixes: Tensor, output: OutputLayer) -> Tensor:
    """Raw weights [..., V] from projected frames [..., J] and prefixes [..., J] that broadcast against each other."""
    return output.logits(hidden_vectors(frames, prefixes))


@dataclass(frozen=True)
class LatticeInputs:
    """What the lattices of a batch need of a joiner.

    Attributes:
        frames: [B, T, J] projected encoder frames
        frame_lengths: [B] number of frames of each utterance
        prefixes: [P, J] projected predictor outputs; which prefixes these are is for the lattice to say
        output: the output layer
    """

    frames: Tensor
    frame_lengths: Tensor
    prefixes: Tensor
    output: OutputLayer

    def __post_init__(self) -> None:
        if self.frames.dim() != 3:
            raise ValueError(f"frames must be [B, T, J]; it is {list(self.frames.shape)}")
        utterances, _, width = self.frames.shape
        if list(self.frame_lengths.shape) != [utterances] or self.frame_lengths.dtype.is_floating_point:
            raise ValueError(f"frame_lengths must be one integer for each of {utterances} utterances")
        if self.prefixes.dim() != 2 or self.prefixes.shape[1] != width:
            raise ValueError(f"prefixes must be [P, {width}]; it is {list(self.prefixes.shape)}")
        if self.output.weight.shape != (len(self.output.bias), width):
            raise ValueError(
                f"output must be a weight [V, {width}] and a bias [V]; they are {list(self.output.weight.shape)} and "
                f"{list(self.output.bias.shape)}"
            )

    @cached_property
    def frame_counts(self) -> list[int]:
        """`frame_lengths` as numbers, checked; the first call waits for the device."""
        counts = self.frame_lengths.tolist()
        longest = self.frames.shape[1]
        if min(counts, default=0) < 0 or max(counts, default=0) > longest:
            raise ValueError(f"frame_lengths {counts} do not fit frames of shape {list(self.frames.shape)}")
        return counts

    @cached_property
    def within(self) -> Tensor:
        """[B, T] whether a frame is one of its utterance's own, not padding."""
        return torch.arange(self.frames.shape[1], device=self.frames.device) < self.frame_lengths[:, None]
