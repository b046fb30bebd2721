"""Averages of parameters over training."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from transducer_gn.common.errors import UserError


class RunningAverage:
    """The mean of the parameters over all additions since its start.

    Averages of two moments with the same start give the average over the time between them: see `average_between`.
    """

    def __init__(self, model: nn.Module, start: int = 0) -> None:
        self.start = start
        self.count = 0
        self.parameters = {name: value.detach().clone() for name, value in _trained(model)}

    def add(self, model: nn.Module) -> None:
        """Count the parameters as they are now."""
        self.count += 1
        with torch.no_grad():
            for name, value in _trained(model):
                self.parameters[name].lerp_(value.detach(), 1 / self.count)

    def restart(self, model: nn.Module, start: int) -> None:
        """Forget what came before update `start`."""
        self.start, self.count = start, 0
        for name, value in _trained(model):
            self.parameters[name].copy_(value.detach())

    def state_dict(self) -> dict[str, Any]:
        """All there is to keep; the parameters themselves, not copies."""
        return {"start": self.start, "count": self.count, "parameters": self.parameters}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.start, self.count = state["start"], state["count"]
        for name, value in self.parameters.items():
            # What was frozen until now is its own average.
            value.copy_(state["parameters"].get(name, value))


def _trained(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters that change, by their names: a frozen front end needs no average."""
    return ((name, value) for name, value in model.named_parameters() if value.requires_grad)


def average_between(earlier: Mapping[str, Any] | None, later: Mapping[str, Any]) -> dict[str, Tensor]:
    """The mean over what was added between two states of a running average, or from its start if `earlier` is None."""
    if earlier is None:
        return dict(later["parameters"])
    if earlier["start"] != later["start"]:
        raise UserError(
            "cannot average between these checkpoints: alpha was still changing in between, and parameters from "
            "different objectives do not mix; choose fewer epochs to average"
        )
    added = later["count"] - earlier["count"]
    if added <= 0:
        raise UserError("nothing was added to the running average between these checkpoints; lower average_period")
    ahead, behind = later["count"] / added, earlier["count"] / added
    return {name: ahead * value - behind * earlier["parameters"][name] for name, value in later["parameters"].items()}
