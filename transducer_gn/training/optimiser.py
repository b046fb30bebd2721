"""Eve, a variant of Adam for scaled parameters, and Eden, its learning rate."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import AdamW, Optimizer

from transducer_gn.config import OptimiserConfig


class Eve(Optimizer):
    """Adam that shrinks only the tensors that have outgrown their target size.

    Each step first multiplies by 1 - `weight_decay` every tensor of more than one element whose root mean square is
    above `target_rms`, then moves along m / (sqrt(v) + eps), with Adam's running means m and v corrected for
    their start at zero. The decay does not depend on the learning rate.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-8,
        weight_decay: float = 1e-3,
        target_rms: float = 0.1,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "target_rms": target_rms}
        super().__init__(parameters, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """Update all parameters that have a gradient; gives the loss of `closure` if there is one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    update(parameter, self.state[parameter], group)
        return loss


def update(parameter: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    """One step of Eve for one parameter [...] with the `state` and the settings of its `group`."""
    if not state:
        state["step"] = 0
        state["mean"] = torch.zeros_like(parameter)
        state["mean_square"] = torch.zeros_like(parameter)
    state["step"] += 1
    beta1, beta2 = group["betas"]
    gradient = parameter.grad
    mean = state["mean"].lerp_(gradient, 1 - beta1)
    mean_square = state["mean_square"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    if parameter.numel() > 1:
        # As a factor and not as a branch, so that an accelerator need not report the norm to the host.
        outgrown = parameter.norm() > group["target_rms"] * parameter.numel() ** 0.5
        parameter.mul_(1 - group["weight_decay"] * outgrown.to(parameter.dtype))
    mean_correction = 1 - beta1 ** state["step"]
    square_correction = 1 - beta2 ** state["step"]
    denominator = (mean_square / square_correction).sqrt_().add_(group["eps"])
    parameter.addcdiv_(mean, denominator, value=-group["lr"] / mean_correction)


class Eden:
    """A learning rate that falls with the square root of both updates and epochs, once these are many.

    lr = initial lr * ((u^2 + U^2) / U^2)^-1/4 * ((e^2 + E^2) / E^2)^-1/4 after u updates and e whole epochs, where
    U is `lr_updates` and E `lr_epochs`. There is no warm-up: the encoder has its own.
    """

    def __init__(self, optimiser: Optimizer, lr_updates: float, lr_epochs: float) -> None:
        self.optimiser = optimiser
        self.lr_updates = lr_updates
        self.lr_epochs = lr_epochs
        self.updates = 0
        self.epochs = 0
        for group in optimiser.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self._apply()

    def step_update(self) -> None:
        """Count one more update."""
        self.updates += 1
        self._apply()

    def step_epoch(self) -> None:
        """Count one more epoch."""
        self.epochs += 1
        self._apply()

    def factor(self) -> float:
        """The current share of the initial learning rate."""
        by_updates = 1 + (self.updates / self.lr_updates) ** 2
        by_epochs = 1 + (self.epochs / self.lr_epochs) ** 2
        return (by_updates * by_epochs) ** -0.25

    def state_dict(self) -> dict[str, int]:
        """What a checkpoint needs."""
        return {"updates": self.updates, "epochs": self.epochs}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue where `state_dict` was taken."""
        self.updates = state["updates"]
        self.epochs = state["epochs"]
        self._apply()

    def _apply(self) -> None:
        """Set the learning rate of every group."""
        for group in self.optimiser.param_groups:
            group["lr"] = group["initial_lr"] * self.factor()


def build_optimiser(config: OptimiserConfig, parameters: Iterable[Tensor]) -> Optimizer:
    """The optimiser that `config` asks for."""
    betas = (config.beta1, config.beta2)
    if config.kind == "adamw":
        return AdamW(parameters, config.initial_lr, betas, config.eps, config.weight_decay)
    return Eve(parameters, config.initial_lr, betas, config.eps, config.weight_decay, config.target_rms)


def build_schedule(config: OptimiserConfig, optimiser: Optimizer) -> Eden:
    """The learning rate that `config` asks for."""
    return Eden(optimiser, config.lr_updates, config.lr_epochs)


def warmup_share(config: OptimiserConfig, updates: int) -> float:
    """The share of the encoder's warm-up that is done after `updates` updates, at most 1."""
    return min(1.0, updates / config.warmup_updates)
