"""Eve, a variant of Adam for scaled parameters, and Eden, its learning rate."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Any

import torch
from torch import Tensor
from torch.optim import AdamW, Optimizer

from transducer_gn.config import OptimiserConfig

# Elements that a step needs memory for at a time, beside what it keeps.
SCRATCH = 2**23


class Eve(Optimizer):
    """Adam that shrinks only the tensors that have outgrown their target size.

    Each step first multiplies by 1 - `weight_decay` every tensor of more than one element whose root mean square is
    above `target_rms`, then moves along m / (sqrt(v) + eps), with Adam's running means m and v corrected for
    their start at zero. The decay does not depend on the learning rate; only as training comes to its end it is
    multiplied by `decay_share`, lest in the last updates tensors do nothing but shrink. A model of hundreds of tensors
    costs no more operations than one of a few: see `_update`.
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
        # Like the share of the learning rate that is left, this follows from where training is, and is in no state.
        self.decay_share = 1.0

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient; gives the loss of `closure` if there is one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameters in _of_one_kind(group["params"]):
                self._update(parameters, group)
        return loss

    def _update(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """One step for parameters of one device and type: every operation takes many of them at once."""
        states = [self._counted(parameter) for parameter in parameters]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        means, mean_squares = ([state[name] for state in states] for name in ("mean", "mean_square"))
        beta1, beta2 = group["betas"]
        torch._foreach_lerp_(means, gradients, 1 - beta1)
        torch._foreach_mul_(mean_squares, beta2)
        torch._foreach_addcmul_(mean_squares, gradients, gradients, value=1 - beta2)
        factors = _decay_factors(parameters, group["target_rms"], self.decay_share * group["weight_decay"])
        corrections = [1 - beta2 ** state["step"] for state in states]
        rates = [-group["lr"] / (1 - beta1 ** state["step"]) for state in states]
        for part in _parts(parameters):
            torch._foreach_mul_(parameters[part], _spread(factors[part], parameters[part]))
            denominators = torch._foreach_div(mean_squares[part], corrections[part])
            torch._foreach_sqrt_(denominators)
            torch._foreach_add_(denominators, group["eps"])
            torch._foreach_addcdiv_(parameters[part], means[part], denominators, scalars=rates[part])

    def _counted(self, parameter: Tensor) -> dict[str, Any]:
        """The state of a parameter, with this step counted."""
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["mean"] = torch.zeros_like(parameter)
            state["mean_square"] = torch.zeros_like(parameter)
        state["step"] += 1
        return state


def _of_one_kind(parameters: Iterable[Tensor]) -> list[list[Tensor]]:
    """The parameters that have a gradient, divided by device and type, in their order."""
    kinds: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            kinds.setdefault((parameter.device, parameter.dtype), []).append(parameter)
    return list(kinds.values())


def _parts(parameters: list[Tensor]) -> Iterator[slice]:
    """Divide a list into stretches of at most `SCRATCH` elements, or of one larger tensor."""
    first, elements = 0, 0
    for number, parameter in enumerate(parameters):
        if number > first and elements + parameter.numel() > SCRATCH:
            yield slice(first, number)
            first, elements = number, 0
        elements += parameter.numel()
    yield slice(first, len(parameters))


def _decay_factors(parameters: list[Tensor], target_rms: float, decay: float) -> Tensor:
    """[n]: 1 - `decay` for parameters of several elements whose root mean square is above `target_rms`, else 1.

    A factor and not a choice, so that an accelerator need not report the norms to the host.
    """
    norms = torch._foreach_norm(parameters)
    limits = [target_rms * x.numel() ** 0.5 if x.numel() > 1 else inf for x in parameters]
    torch._foreach_sub_(norms, limits)
    outgrown = torch.stack(norms) > 0
    return 1 - decay * outgrown.to(parameters[0].dtype)


def _spread(factors: Tensor, parameters: list[Tensor]) -> list[Tensor] | tuple[Tensor, ...]:
    """Each of the factors [n] as a tensor that its parameter can be multiplied by."""
    if _broadcasts_lists(factors.device):
        return factors.unbind()
    sizes = [parameter.numel() for parameter in parameters]
    repeats = torch.tensor(sizes).to(factors.device, non_blocking=True)
    parts = factors.repeat_interleave(repeats, output_size=sum(sizes)).split(sizes)
    return [part.view(parameter.shape) for part, parameter in zip(parts, parameters, strict=True)]


def _broadcasts_lists(device: torch.device) -> bool:
    """Whether a list of numbers costs a device no more than a list of equal shapes.

    An accelerator works on a whole list at once only where shapes are equal; else it launches a kernel per tensor.
    """
    return device.type == "cpu"


class Eden:
    """A learning rate that falls with the square root of both updates and epochs, once these are many.

    lr = initial lr * ((u^2 + U^2) / U^2)^-1/4 * ((e^2 + E^2) / E^2)^-1/4 after u updates and e whole epochs, where
    U is `lr_updates` and E `lr_epochs`. There is no warm-up: the encoder has its own. As training comes to its end,
    all of it may be multiplied by a share that falls to 0, see `cool_down`.
    """

    def __init__(self, optimiser: Optimizer, lr_updates: float, lr_epochs: float) -> None:
        self.optimiser = optimiser
        self.lr_updates = lr_updates
        self.lr_epochs = lr_epochs
        self.updates = 0
        self.epochs = 0
        self._share = 1.0
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

    def cool_down(self, share: float) -> None:
        """Leave this share of the rate and of Eve's decay; it follows from where training is, and is in no state."""
        self._share = share
        # That of AdamW is relative to the rate as it is.
        if isinstance(self.optimiser, Eve):
            self.optimiser.decay_share = share
        self._apply()

    def factor(self) -> float:
        """The current share of the initial learning rate."""
        by_updates = 1 + (self.updates / self.lr_updates) ** 2
        by_epochs = 1 + (self.epochs / self.lr_epochs) ** 2
        return self._share * (by_updates * by_epochs) ** -0.25

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


def build_optimiser(
    config: OptimiserConfig, parameters: Iterable[Tensor], pretrained: Sequence[Tensor] = ()
) -> Optimizer:
    """The optimiser that `config` asks for.

    Args:
        parameters: those that began at random
        pretrained: those that did not: a group of its own, with another learning rate and no decay
    """
    betas = (config.beta1, config.beta2)
    groups: list[dict[str, Any]] = [{"params": list(parameters)}]
    if pretrained:
        groups.append({"params": list(pretrained), "lr": config.front_end_lr, "weight_decay": 0.0})
    if config.kind == "adamw":
        return AdamW(groups, config.initial_lr, betas, config.eps, config.weight_decay)
    return Eve(groups, config.initial_lr, betas, config.eps, config.weight_decay, config.target_rms)


def load_optimiser(optimiser: Optimizer, state: dict[str, Any], config: OptimiserConfig) -> None:
    """Go on from a state with the learning rates of `config`.

    A group that the state does not have begins afresh, and one that the optimiser does not have, of parameters that are
    frozen from now on, is left out. The state holds the learning rate of the run that it comes from; a branch may have
    its own.
    """
    own = optimiser.state_dict()["param_groups"]
    groups = [*state["param_groups"][: len(own)], *own[len(state["param_groups"]) :]]
    moved = {number for group in groups for number in group["params"]}
    kept = {number: values for number, values in state["state"].items() if number in moved}
    optimiser.load_state_dict({"state": kept, "param_groups": groups})
    for group, rate in zip(optimiser.param_groups, (config.initial_lr, config.front_end_lr), strict=False):
        group["initial_lr"] = rate


def build_schedule(config: OptimiserConfig, optimiser: Optimizer) -> Eden:
    """The learning rate that `config` asks for."""
    return Eden(optimiser, config.lr_updates, config.lr_epochs)


def warmup_share(config: OptimiserConfig, updates: int) -> float:
    """The share of the encoder's warm-up that is done after `updates` updates, at most 1."""
    return min(1.0, updates / config.warmup_updates)
