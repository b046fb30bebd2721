"""Invariant: non-linearity, norm, dropout and balancer are what their formulas say in value and gradient; balancer and
dropout act only in training, and padding does not count in the balancer's statistics.
"""

import numpy as np
import pytest
import torch
from model_oracles import array, sigmoid

from transducer_gn.model.activation import Balancer, BasicNorm, Limits, double_swish, dropout


def test_double_swish_and_its_gradient() -> None:
    x = torch.linspace(-6, 6, 31, dtype=torch.float64, requires_grad=True)
    np.testing.assert_allclose(array(double_swish(x)), array(x) * sigmoid(array(x) - 1), atol=1e-15)
    assert torch.autograd.gradcheck(double_swish, (x,))


def test_basic_norm_and_its_gradient() -> None:
    torch.manual_seed(0)
    norm = BasicNorm().double()
    with torch.no_grad():
        norm.log_eps.fill_(-0.7)
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    oracle = array(x) / np.sqrt((array(x) ** 2).mean(axis=1, keepdims=True) + np.exp(-0.7))
    np.testing.assert_allclose(array(norm(x)), oracle, atol=1e-14)
    assert torch.autograd.gradcheck(norm, (x,))


def test_basic_norm_in_half_precision_does_not_overflow() -> None:
    x = torch.full((2, 8), 1000.0, dtype=torch.float16)
    assert torch.equal(BasicNorm()(x), torch.ones_like(x))


def test_dropout_keeps_the_mean_and_drops_its_share() -> None:
    torch.manual_seed(0)
    x = torch.ones(999, 1001)
    y = dropout(x, 0.1, training=True)
    # Standard deviation of the share is 0.0003; rows and columns must not share draws either.
    assert (y == 0).float().mean().item() == pytest.approx(0.1, abs=0.0015)
    assert y.unique().tolist() == pytest.approx([0.0, 1 / 0.9])
    assert ((y == 0).float().mean(dim=0).std().item()) == pytest.approx((0.1 * 0.9 / 999) ** 0.5, rel=0.1)
    assert ((y == 0).float().mean(dim=1).std().item()) == pytest.approx((0.1 * 0.9 / 1001) ** 0.5, rel=0.1)


def test_dropout_gradient_is_its_mask_and_seeds_repeat_it() -> None:
    x = torch.randn(7, 9, requires_grad=True)
    results = []
    for _ in range(2):
        torch.manual_seed(3)
        y = dropout(x, 0.4, training=True)
        results.append(y)
        (gradient,) = torch.autograd.grad(y.sum(), x)
        torch.testing.assert_close(gradient, y.detach() / x.detach())
    assert torch.equal(*results)
    assert not torch.equal(dropout(x, 0.4, training=True), results[0])


def test_dropout_is_the_identity_in_evaluation() -> None:
    x = torch.randn(7, 9)
    assert dropout(x, 0.4, training=False) is x


# Channels: mostly negative, mostly positive, too small, too large, and within all limits.
LIMITS = Limits(min_positive=0.25, max_positive=0.75, min_abs=0.5, max_abs=2.0, strength=0.1)
COLUMNS = np.array(
    [
        [-1.0, -1.0, -1.0, -1.0],
        [1.0, 1.0, 1.0, 1.0],
        [0.1, -0.1, 0.1, -0.1],
        [3.0, -3.0, 3.0, -3.0],
        [1.0, -1.0, 1.0, -1.0],
    ]
).T


def balanced_gradient(x: np.ndarray, gradient: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """The balancer's gradient, channel by channel, from its description."""
    result = gradient.copy()
    for channel in range(x.shape[1]):
        seen = x[valid, channel]
        positive, size = (seen > 0).mean(), np.abs(seen).mean()
        up = away = 0.0
        if positive < LIMITS.min_positive:
            up = (LIMITS.min_positive - positive) / LIMITS.min_positive
        if positive > LIMITS.max_positive:
            up = -(positive - LIMITS.max_positive) / (1 - LIMITS.max_positive)
        if size < LIMITS.min_abs:
            away = (LIMITS.min_abs - size) / LIMITS.min_abs
        if size > LIMITS.max_abs:
            away = -min(1.0, (size - LIMITS.max_abs) / LIMITS.max_abs)
        direction = up + away * np.sign(x[:, channel])
        result[:, channel] -= LIMITS.strength * direction * np.abs(gradient[:, channel])
    return result


def test_balancer_nudges_each_channel_back_into_its_limits() -> None:
    x = torch.tensor(COLUMNS, requires_grad=True)
    upstream = torch.randn(x.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    valid = torch.ones(4, dtype=torch.bool)
    y = Balancer(LIMITS)(x, valid)
    assert torch.equal(y, x)
    (gradient,) = torch.autograd.grad(y, x, upstream)
    np.testing.assert_allclose(array(gradient), balanced_gradient(COLUMNS, array(upstream), valid.numpy()), atol=1e-14)
    # The descent direction is minus the gradient: up, down, outwards, inwards, unchanged.
    change = array(upstream - gradient)
    assert (change[:, 0] > 0).all() and (change[:, 1] < 0).all()
    assert (change[:, 2] * COLUMNS[:, 2] > 0).all() and (change[:, 3] * COLUMNS[:, 3] < 0).all()
    assert (change[:, 4] == 0).all()


def test_balancer_leaves_padding_out_of_its_statistics() -> None:
    valid = torch.tensor([[True, True, True, True], [True, True, False, False]])
    x = torch.randn(2, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    x[1, 2:] = 100.0
    upstream = torch.randn(x.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(Balancer(LIMITS)(x, valid), x, upstream)
    expected = balanced_gradient(array(x).reshape(8, 5), array(upstream).reshape(8, 5), valid.flatten().numpy())
    np.testing.assert_allclose(array(gradient).reshape(8, 5), expected, atol=1e-14)


def test_balancer_is_off_in_evaluation() -> None:
    x = torch.tensor(COLUMNS, requires_grad=True)
    assert Balancer(LIMITS).eval()(x, torch.ones(4, dtype=torch.bool)) is x


@pytest.mark.parametrize("channels", [[], [2], [0, 1, 2, 3, 4]])
def test_balancer_nudges_the_same_however_many_channels_are_outside(channels: list[int]) -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(2, 6, 8, dtype=torch.float64, generator=generator).clamp(-1.5, 1.5)
    x[..., channels] *= 0.01
    upstream = torch.randn(x.shape, dtype=torch.float64, generator=generator)
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(Balancer(LIMITS)(x, torch.ones(2, 6, dtype=torch.bool)), x, upstream)
    expected = balanced_gradient(array(x).reshape(12, 8), array(upstream).reshape(12, 8), np.ones(12, dtype=bool))
    np.testing.assert_allclose(array(gradient).reshape(12, 8), expected, atol=1e-14)
    changed = (gradient != upstream).any(0).any(0).nonzero().flatten().tolist()
    assert set(channels) <= set(changed)


def test_balancer_gives_gradients_that_may_be_changed_in_place() -> None:
    x = torch.tensor(COLUMNS[:, 4:], requires_grad=True)
    upstream = torch.ones(4, 1, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(Balancer(LIMITS)(x, torch.ones(4, dtype=torch.bool)), x, upstream)
    gradient.zero_()
    assert (upstream == 1).all()
