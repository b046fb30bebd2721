"""One policy for numbers that are NaN or infinite, wherever they appear: leave out the update, keep and name its batch.

    features, encoder, search, recursion    a `NotFiniteError`, or a loss that is not finite
    the loss                                a gradient that is not finite (`alarmed`, `failed_objective`)
    the gradient                            no update (`Learner.update`), on all ranks: gradients are added up over them
    parameters after an update              training ends before they are saved (`check_parameters`)

So one look at the gradient's norm tells every rank, and neither another message between ranks nor another wait for
the device is needed. What follows a fault may take its time.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from transducer_gn.common.errors import NotFiniteError, UserError
from transducer_gn.common.files import replace_when_done
from transducer_gn.data.batches import Batch
from transducer_gn.recognition.checkpoint import checkpoint_files
from transducer_gn.recognition.tensor_files import write_tensors
from transducer_gn.training.objective import SUMS, Objective


@dataclass(frozen=True)
class Fault:
    """A batch that an update was left out for.

    Attributes:
        batch: the batch
        reason: what is known of the fault
    """

    batch: Batch
    reason: str

    def sentence(self, precision: str) -> str:
        """What is wrong with which utterances; `precision` is that of the encoder."""
        batch = self.batch
        rows = zip(batch.ids, batch.features, batch.feature_lengths.tolist(), strict=True)
        if names := [name for name, features, length in rows if not bool(features[:length].isfinite().all())]:
            return f"the features of {', '.join(names)} hold NaN or inf"
        half = "" if precision == "float32" else f" (in {precision}: see training.precision)"
        return f"{self.reason}{half}, for utterances {', '.join(batch.ids)}"


def alarmed(loss: Tensor, parameters: Iterable[nn.Parameter]) -> Tensor:
    """The same loss, whose gradient is not finite either where its value is not.

    A reference without any alignment has an infinite loss and no gradient at all; the other ranks would not know.
    Adds nothing to a finite loss and its gradient.
    """
    carrier = min((parameter for parameter in parameters if parameter.requires_grad), key=Tensor.numel)
    return loss + 0 * loss.detach() * carrier.flatten()[0]


def failed_objective(model: nn.Module, error: NotFiniteError) -> Objective:
    """Stands for the objective of a batch that has none: no sums, and NaN for a gradient, of all parameters.

    Of all, since ranks wait for each other's gradients of every one.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    loss = math.nan * torch.stack([parameter.flatten()[0] for parameter in parameters]).sum()
    nothing = torch.zeros((), device=loss.device)
    return Objective(loss, dict.fromkeys(SUMS, nothing), nothing.new_zeros(0), fault=str(error))


def check_parameters(model: nn.Module, step: int, folder: Path) -> None:
    """UserError if parameters are not finite: whatever follows is lost, and no such checkpoint may be written.

    Args:
        model: after `step` updates; the same on all ranks
        folder: of the run
    """
    names, values = zip(*model.named_parameters(), strict=True)
    finite = torch.stack([value.detach().isfinite().all() for value in values]).tolist()
    if all(finite):
        return
    bad = [name for name, is_finite in zip(names, finite, strict=True) if not is_finite]
    files = sorted(checkpoint_files(folder), key=lambda path: path.stat().st_mtime)
    where = f"go on from {files[-1]}, which is sound," if files else "begin again"
    raise UserError(
        f"{len(bad)} of the model's parameters ({', '.join(bad[:3])}{', ...' if len(bad) > 3 else ''}) are not finite "
        f"after update {step}, so that nothing can be learnt any more; {where} with a lower optimiser.initial_lr, with "
        "training.clip or in another training.precision (and --allow-changed)"
    )


def save_batch(folder: Path, batch: Batch, step: int, rank: int, number: int) -> Path:
    """Keep a batch for inspection, the `number`-th (from 0) of a rank's update `step`; returns where."""
    path = folder / f"bad-batch-{step}-{rank}{f'-{number}' if number else ''}.pt"
    names = ("features", "feature_lengths", "tokens", "token_lengths", "ids", "texts")
    content = {name: getattr(batch, name) for name in names}
    with replace_when_done(path) as sibling:
        write_tensors({name: x.cpu() if isinstance(x, Tensor) else x for name, x in content.items()}, sibling)
    return path
