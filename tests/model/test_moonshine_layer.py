"""Invariant: attention by plain products, as training in half precision on processors has it, is attention."""

import torch

from transducer_gn.model.moonshine_layer import attend, attend_by_products


def arguments(seed: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    numbers = (torch.randn(2, 3, size, 6, generator=generator, requires_grad=True) for size in (5, 7, 7))
    visible = torch.rand(2, 1, 5, 7, generator=generator) < 0.5
    visible[..., 0] = True
    return *numbers, visible


def test_products_give_the_same_means_and_gradients() -> None:
    query, keys, values, visible = arguments(seed=0)
    found, fused = (each(query, keys, values, visible) for each in (attend_by_products, attend))
    torch.testing.assert_close(found, fused)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(1))
    of_found, of_fused = (torch.autograd.grad((each * weights).sum(), (query, keys, values)) for each in (found, fused))
    torch.testing.assert_close(of_found, of_fused)


def test_autocast_takes_the_products_in_half_precision() -> None:
    query, keys, values, visible = arguments(seed=2)
    exact = attend(query, keys, values, visible)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = attend(query, keys, values, visible)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), exact, rtol=0, atol=0.05)
