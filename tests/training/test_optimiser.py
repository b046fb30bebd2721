"""Invariant: Eve's and Eden's numbers are those of their formulas in float64, also after a restart from a saved state;
Eve over lists of tensors is Eve tensor by tensor, bit for bit, in few operations; the AdamW choice is torch's.
"""

import io

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from transducer_gn.config import OptimiserConfig
from transducer_gn.training import optimiser as optimiser_module
from transducer_gn.training.optimiser import Eden, Eve, build_optimiser, build_schedule, warmup_share

# Above its target size, below it, and a scalar far above it: only the first may shrink.
STARTS = [np.full((3, 4), 0.5), np.full((5,), 0.01), np.array(7.0)]


def gradients(step: int) -> list[np.ndarray]:
    """Gradients of the step, with a zero among them."""
    random = np.random.default_rng(step)
    values = [random.normal(size=start.shape) for start in STARTS]
    values[1][0] = 0.0
    return values


def eve_by_formula(steps: int, rates: list[float], decay: float = 1e-3, target: float = 0.1) -> list[np.ndarray]:
    """Parameters after some steps of Eve, written out."""
    values = [start.copy() for start in STARTS]
    means = [np.zeros_like(start) for start in STARTS]
    squares = [np.zeros_like(start) for start in STARTS]
    for step in range(1, steps + 1):
        for i, gradient in enumerate(gradients(step)):
            means[i] = 0.9 * means[i] + 0.1 * gradient
            squares[i] = 0.98 * squares[i] + 0.02 * gradient**2
            size = values[i].size
            if size > 1 and np.sqrt((values[i] ** 2).sum()) > target * np.sqrt(size):
                values[i] = values[i] * (1 - decay)
            unbiased_mean = means[i] / (1 - 0.9**step)
            unbiased_square = squares[i] / (1 - 0.98**step)
            values[i] = values[i] - rates[step - 1] * unbiased_mean / (np.sqrt(unbiased_square) + 1e-8)
    return values


def run(optimiser: torch.optim.Optimizer, parameters: list[torch.Tensor], steps: range) -> None:
    """Take some steps with the gradients above."""
    for step in steps:
        for parameter, gradient in zip(parameters, gradients(step), strict=True):
            parameter.grad = torch.from_numpy(np.asarray(gradient))
        optimiser.step()


def new_parameters() -> list[torch.Tensor]:
    """The starting values as parameters in float64."""
    return [torch.nn.Parameter(torch.from_numpy(start.copy())) for start in STARTS]


def test_three_steps_of_eve_are_the_formula() -> None:
    parameters = new_parameters()
    run(Eve(parameters, lr=0.003), parameters, range(1, 4))
    for parameter, oracle in zip(parameters, eve_by_formula(3, [0.003] * 3), strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), oracle, rtol=1e-12)


def test_eve_shrinks_only_tensors_above_their_target() -> None:
    """With a zero gradient only the decay acts, and it does not depend on the learning rate."""
    for lr in (0.003, 3.0):
        parameters = new_parameters()
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        Eve(parameters, lr=lr, weight_decay=0.25).step()
        np.testing.assert_allclose(parameters[0].detach().numpy(), 0.75 * STARTS[0], rtol=1e-15)
        assert np.array_equal(parameters[1].detach().numpy(), STARTS[1])
        assert np.array_equal(parameters[2].detach().numpy(), STARTS[2])


def test_eve_takes_gradient_and_loss_from_a_closure() -> None:
    asked, told = (torch.nn.Parameter(torch.tensor([1.0, -2.0])) for _ in range(2))

    def loss_of(parameter: torch.Tensor) -> torch.Tensor:
        loss = parameter.square().sum()
        loss.backward()
        return loss

    assert Eve([asked], lr=0.1).step(lambda: loss_of(asked)).item() == 5.0
    loss_of(told)
    assert Eve([told], lr=0.1).step() is None
    assert torch.equal(asked, told) and not torch.equal(asked, torch.tensor([1.0, -2.0]))


def test_eve_leaves_parameters_without_gradient_alone() -> None:
    parameters = new_parameters()
    parameters[0].grad = torch.ones_like(parameters[0])
    Eve(parameters, lr=0.1).step()
    assert not np.array_equal(parameters[0].detach().numpy(), STARTS[0])
    assert np.array_equal(parameters[1].detach().numpy(), STARTS[1])


def eve_tensor_by_tensor(parameter, state, group):
    """One step of Eve for one parameter with the state and the settings of its group, one operation after another."""
    if not state:
        state |= {"step": 0, "mean": torch.zeros_like(parameter), "mean_square": torch.zeros_like(parameter)}
    state["step"] += 1
    beta1, beta2 = group["betas"]
    gradient = parameter.grad
    mean = state["mean"].lerp_(gradient, 1 - beta1)
    mean_square = state["mean_square"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    if parameter.numel() > 1:
        outgrown = parameter.norm() > group["target_rms"] * parameter.numel() ** 0.5
        parameter.mul_(1 - group["weight_decay"] * outgrown.to(parameter.dtype))
    denominator = (mean_square / (1 - beta2 ** state["step"])).sqrt_().add_(group["eps"])
    parameter.addcdiv_(mean, denominator, value=-group["lr"] / (1 - beta1 ** state["step"]))


def many_parameters() -> list[torch.nn.Parameter]:
    """Of many shapes, two types, around the target size: some outgrow it and some shrink below it."""
    generator = torch.Generator().manual_seed(3)
    shapes = [(7, 5), (33,), (1,), (), (4, 3, 2), (128, 17), (2,)] * 4
    kinds = [torch.float32] * 20 + [torch.float64] * 8
    sizes = 0.1 + 0.01 * torch.randn(len(shapes), generator=generator)
    values = [
        (size * torch.randn(shape, generator=generator).sign()).to(kind)
        for shape, kind, size in zip(shapes, kinds, sizes, strict=True)
    ]
    return [torch.nn.Parameter(value) for value in values]


@pytest.mark.parametrize("broadcasts", [True, False], ids=["as on a CPU", "as on an accelerator"])
def test_eve_over_lists_is_eve_tensor_by_tensor(broadcasts, monkeypatch) -> None:
    monkeypatch.setattr(optimiser_module, "_broadcasts_lists", lambda device: broadcasts)
    monkeypatch.setattr(optimiser_module, "SCRATCH", 100)  # several parts, and tensors that are larger than one
    ours, theirs = many_parameters(), many_parameters()
    eve = Eve([{"params": ours[:9]}, {"params": ours[9:], "lr": 0.01}], lr=0.003, weight_decay=0.2)
    states = [{} for _ in theirs]
    generator = torch.Generator().manual_seed(4)
    for step in range(4):
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            # Some have no gradient at some steps, so that parameters differ in how many steps they have made.
            has_gradient = (number + step) % 5 > 0
            one.grad = torch.randn(one.shape, generator=generator).to(one.dtype) if has_gradient else None
            other.grad = one.grad
        eve.step()
        with torch.no_grad():
            for number, other in enumerate(theirs):
                if other.grad is not None:
                    eve_tensor_by_tensor(other, states[number], eve.param_groups[number >= 9])
        assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True)), step
    saved = eve.state_dict()["state"]
    for number, state in enumerate(states):
        assert saved[number].keys() == state.keys() and saved[number]["step"] == state["step"] > 0
        assert all(torch.equal(saved[number][name], state[name]) for name in ("mean", "mean_square"))
    assert len({state["step"] for state in states}) > 1


class CountOperations(TorchDispatchMode):
    """Counts what is dispatched; one for a whole list."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


def test_operations_of_a_step_do_not_depend_on_the_number_of_tensors() -> None:
    counts = []
    for copies in (1, 20):
        parameters = [parameter for _ in range(copies) for parameter in many_parameters()]
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        eve = Eve(parameters, lr=0.003)
        eve.step()  # makes the running means
        with CountOperations() as operations:
            eve.step()
        counts.append(operations.count)
    # Two types of numbers, each at most 60 operations.
    assert counts[0] == counts[1] <= 120


def test_eve_and_eden_restart_bit_for_bit() -> None:
    config = OptimiserConfig(lr_updates=2.0, lr_epochs=1.0)
    straight = new_parameters()
    optimiser = build_optimiser(config, straight)
    schedule = build_schedule(config, optimiser)
    half_way: dict = {}
    for step in range(1, 7):
        run(optimiser, straight, range(step, step + 1))
        schedule.step_update()
        if step == 3:
            schedule.step_epoch()
            values = [parameter.detach() for parameter in straight]
            states = {"optimiser": optimiser.state_dict(), "schedule": schedule.state_dict()}
            half_way = torch_round_trip({**states, "values": values})
    restarted = [torch.nn.Parameter(value) for value in half_way["values"]]
    optimiser = build_optimiser(config, restarted)
    schedule = build_schedule(config, optimiser)
    optimiser.load_state_dict(half_way["optimiser"])
    schedule.load_state_dict(half_way["schedule"])
    for step in range(4, 7):
        run(optimiser, restarted, range(step, step + 1))
        schedule.step_update()
    for one, other in zip(straight, restarted, strict=True):
        assert torch.equal(one, other)


def torch_round_trip(state: dict) -> dict:
    """Through a file in memory, as a checkpoint that loads only weights does."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


@pytest.mark.parametrize(("updates", "epochs"), [(0, 0), (1, 0), (5000, 0), (0, 6), (40000, 39)])
def test_eden_is_the_formula(updates: int, epochs: int) -> None:
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimiser = Eve([parameter], lr=0.003)
    Eden(optimiser, lr_updates=5000, lr_epochs=6).load_state_dict({"updates": updates, "epochs": epochs})
    oracle = 0.003 * ((updates**2 + 5000**2) / 5000**2) ** -0.25 * ((epochs**2 + 6**2) / 6**2) ** -0.25
    assert optimiser.param_groups[0]["lr"] == pytest.approx(oracle, rel=1e-12)


def test_eden_cools_down_every_group_and_forgets_it_in_its_state() -> None:
    groups = [{"params": [torch.nn.Parameter(torch.zeros(2))]} for _ in range(2)]
    optimiser = Eve([groups[0], groups[1] | {"lr": 0.001}], lr=0.003)
    schedule = Eden(optimiser, lr_updates=3.0, lr_epochs=6)
    schedule.load_state_dict({"updates": 4, "epochs": 0})
    schedule.cool_down(0.25)
    schedule.step_update()
    rates = [group["lr"] for group in optimiser.param_groups]
    assert rates == pytest.approx([0.25 * rate * ((5**2 + 3**2) / 3**2) ** -0.25 for rate in (0.003, 0.001)], rel=1e-12)
    assert schedule.state_dict() == {"updates": 5, "epochs": 0}


@pytest.mark.parametrize("share", [1.0, 0.5, 0.0])
def test_shrinkage_cools_down_with_the_learning_rate(share) -> None:
    ours, theirs = many_parameters(), many_parameters()
    eve, plain = Eve(ours, lr=0.003, weight_decay=0.25), Eve(theirs, lr=0.003 * share, weight_decay=0.25 * share)
    Eden(eve, lr_updates=5000, lr_epochs=6).cool_down(share)
    generator = torch.Generator().manual_seed(5)
    for one, other in zip(ours, theirs, strict=True):
        one.grad = other.grad = torch.randn(one.shape, generator=generator).to(one.dtype)
    eve.step()
    plain.step()
    # With the whole share it is bit for bit what it was; with none nothing moves.
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    start = many_parameters()
    assert all(torch.equal(one, other) == (share == 0) for one, other in zip(ours, start, strict=True))
    assert "decay_share" not in eve.state_dict()["param_groups"][0]


def test_eve_under_eden_follows_both_formulas() -> None:
    parameters = new_parameters()
    optimiser = Eve(parameters, lr=0.003)
    schedule = Eden(optimiser, lr_updates=1.0, lr_epochs=2.0)
    rates = []
    for step in range(1, 4):
        rates.append(0.003 * (1 + (step - 1) ** 2) ** -0.25 * (1.25 if step == 3 else 1.0) ** -0.25)
        run(optimiser, parameters, range(step, step + 1))
        schedule.step_update()
        if step == 2:
            schedule.step_epoch()
    for parameter, oracle in zip(parameters, eve_by_formula(3, rates), strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), oracle, rtol=1e-12)


def test_adamw_is_the_formula() -> None:
    """AdamW decays every tensor by the learning rate times the weight decay."""
    parameters = new_parameters()
    run(build_optimiser(OptimiserConfig(kind="adamw", weight_decay=0.5), parameters), parameters, range(1, 2))
    for parameter, start, gradient in zip(parameters, STARTS, gradients(1), strict=True):
        oracle = start * (1 - 0.003 * 0.5) - 0.003 * gradient / (np.abs(gradient) + 1e-8)
        np.testing.assert_allclose(parameter.detach().numpy(), oracle, rtol=1e-9)


def test_warmup_grows_with_updates_and_ends() -> None:
    config = OptimiserConfig(warmup_updates=200)
    assert [warmup_share(config, updates) for updates in (0, 50, 200, 900)] == [0.0, 0.25, 1.0, 1.0]
