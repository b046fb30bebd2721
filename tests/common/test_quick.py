"""Invariant: what is computed quickly is what torch's own operations give, up to rounding, for any number of rows; and
where it is not wanted, it is torch's own operations.
"""

import pytest
import torch

from transducer_gn.common import quick

ROWS = [0, 1, 63, 64, 65, 255, 256, 300, 600]


@pytest.fixture
def no_kernels(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)


@pytest.fixture
def met(monkeypatch):
    """Shapes of what is multiplied by oneDNN."""
    if not quick._has_kernels():
        pytest.skip("this build of torch has no products of oneDNN")
    shapes = []
    kernels = quick._KERNELS

    class Recorded:
        @staticmethod
        def _linear_pointwise(x, *rest):
            shapes.append(tuple(x.shape))
            return kernels._linear_pointwise(x, *rest)

    monkeypatch.setattr(quick, "_KERNELS", Recorded)
    return shapes


def normal(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-7), (torch.float64, 5e-16)])
def test_tanh(dtype, tolerance):
    x = torch.cat([torch.linspace(-12, 12, 4001).double(), torch.tensor([1e-30, -1e-5, 60.0, -60.0, 1e30, -1e30])])
    x = torch.cat([x, torch.tensor([torch.inf, -torch.inf])]).to(dtype)
    expected = x.double().tanh()
    assert quick.tanh_(x) is x, "it is overwritten"
    torch.testing.assert_close(x.double(), expected, rtol=0, atol=tolerance)
    assert x.abs().max() == 1, "what comes after takes 1 - tanh^2 for a derivative"
    assert quick.tanh_(torch.tensor([torch.nan])).isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", ROWS)
def test_products(rows, dtype):
    x, weight, bias, right = (part.to(dtype) for part in (normal(rows, 20), normal(9, 20), normal(9), normal(rows, 7)))
    tolerance = dict(rtol=0, atol=1e-4 if dtype == torch.float32 else 1e-11)
    exact = x.double() @ weight.double().t()
    for given, expected in ((bias, exact + bias.double()), (None, exact)):
        out = torch.full((rows, 9), torch.nan, dtype=dtype)
        assert quick.affine(x, weight, given, out) is out
        torch.testing.assert_close(out.double(), expected, **tolerance)
    turned = quick.affine(x, weight.t().contiguous().t(), None, torch.empty(rows, 9, dtype=dtype))
    torch.testing.assert_close(turned.double(), exact, **tolerance)
    expected = x.double().t() @ right.double()
    torch.testing.assert_close(quick.product(x, right).double(), expected, **tolerance)
    sums = torch.ones(20, 7, dtype=dtype)
    quick.add_product(sums, x, right)
    torch.testing.assert_close(sums.double() - 1, expected, **tolerance)


@pytest.mark.parametrize("rows", ROWS)
def test_onednn_meets_few_numbers_of_rows(rows, met):
    x, right = normal(rows, 20).float(), normal(rows, 7).float()
    quick.affine(x, normal(9, 20).float(), None, torch.empty(rows, 9))
    numbers = [shape[0] for shape in met]
    assert sum(numbers) == rows - rows % 64, "all rows but the few left over are multiplied quickly"
    assert all(number % 256 == 0 or (number < 256 and number % 64 == 0) for number in numbers)
    met.clear()
    quick.add_product(torch.zeros(20, 7), x, right)
    assert [shape[1] for shape in met] == numbers
    met.clear()
    quick.affine(x.double(), normal(9, 20), None, torch.empty(rows, 9).double())
    assert not met, "oneDNN has no double precision"


@pytest.mark.usefixtures("no_kernels")
@pytest.mark.parametrize("rows", [1, 300])
def test_without_onednn_products_are_torchs(rows):
    x, weight, bias = normal(rows, 20).float(), normal(9, 20).float(), normal(9).float()
    assert torch.equal(quick.affine(x, weight, bias, torch.empty(rows, 9)), torch.addmm(bias, x, weight.t()))
    assert torch.equal(quick.affine(x, weight, None, torch.empty(rows, 9)), x @ weight.t())
    assert torch.equal(quick.product(x, x), x.t() @ x)


def test_where_it_is_not_wanted_it_is_torchs_own(monkeypatch, met):
    monkeypatch.setattr(quick, "DEVICES", frozenset())
    x, weight = normal(300, 20).float(), normal(9, 20).float()
    assert torch.equal(quick.affine(x, weight, None, torch.empty(300, 9)), x @ weight.t())
    assert torch.equal(quick.product(x, x), x.t() @ x)
    assert torch.equal(quick.tanh_(x.clone()), x.tanh())
    assert not met
