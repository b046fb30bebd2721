"""Products by packed weights are those of the weights, and a row's does not depend on how many rows there are."""

import pytest
import torch
from torch.nn import functional

from transducer_gn.common import quick
from transducer_gn.model.packed import PackedWeight


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("with_bias", [True, False])
def test_products_are_those_of_the_weights(dtype, with_bias):
    torch.manual_seed(0)
    weight, bias = torch.randn(24, 40, dtype=dtype), torch.randn(24, dtype=dtype) if with_bias else None
    packed = PackedWeight(weight, bias)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    for x in (torch.randn(0, 40), torch.randn(1, 40), torch.randn(7, 2, 40)[:, 1], torch.randn(3, 5, 40)):
        wanted = functional.linear(x.to(dtype), weight, bias)
        torch.testing.assert_close(packed.product(x.to(dtype)), wanted, rtol=tolerance, atol=tolerance)
    x, other = torch.randn(7, 2, 40, dtype=dtype)[:, 1], torch.randn(7, 24, dtype=dtype)
    wanted = other + functional.linear(x, weight, bias)
    torch.testing.assert_close(packed.added_to(other, x), wanted, rtol=tolerance, atol=tolerance)


def test_a_row_is_the_same_among_any_number_of_others():
    torch.manual_seed(0)
    packed = PackedWeight(torch.randn(48, 64), torch.randn(48))
    if packed._packed is None:
        pytest.skip("this build of torch cannot pack weights")
    x = torch.randn(40, 64)
    together = packed.product(x)
    for count in (1, 2, 3, 5, 17, 39):
        assert torch.equal(packed.product(x[:count]), together[:count])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_of_some_rows(dtype):
    torch.manual_seed(0)
    weight, x = torch.randn(24, 40, dtype=dtype), torch.randn(11, 40, dtype=dtype)
    packed = PackedWeight(weight, torch.randn(24, dtype=dtype))
    tolerance = dict(rtol=0, atol=1e-4 if dtype == torch.float32 else 1e-12)
    for rows in (slice(0, 1), slice(2, 5), slice(3, 7), slice(4, 9), slice(9, 11), slice(10, 11), slice(5, 5)):
        expected = x[rows] @ weight.t()
        torch.testing.assert_close(packed.of_rows(x, rows), expected, **tolerance)
        out = torch.ones_like(expected)
        packed.add_of_rows(out, x, rows)
        torch.testing.assert_close(out - 1, expected, **tolerance)


def test_weights_are_packed_only_where_it_is_wanted(monkeypatch):
    monkeypatch.setattr(quick, "DEVICES", frozenset())
    assert PackedWeight(torch.randn(24, 40))._packed is None
