"""Invariant: the counter of launches counts what computes once, views never, and waits for values apart; parts of an
update on the meta device dispatch what they dispatch on real tensors.
"""

from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def beside_the_benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_what_computes_counts_and_views_do_not() -> None:
    from launch_counter import count

    x, y = torch.ones(4, 3), torch.ones(3, 5)
    part = count(lambda: (x @ y).view(20)[3:].add_(1))
    assert part.by_operation() == {"aten::mm": 1, "aten::add_": 1}
    assert part.summary() == {
        "launches": 2,
        "kernels": 2,
        "waits": 0,
        "bytes": 4 * (12 + 15 + 20) + 4 * 2 * 17,
        "multiplications": 4 * 3 * 5,
    }


@pytest.mark.parametrize(
    ("look", "launches"),
    [
        (lambda x: x.sum().item(), 1),
        (lambda x: bool(x[0] > 0), 1),
        (lambda x: x.tolist(), 0),
        (lambda x: x.nonzero(), 1),
        (lambda x: x[x > 0], 2),
        (lambda x: torch.bincount(x.long()), 2),
    ],
    ids=["item", "bool", "tolist", "nonzero", "mask", "bincount"],
)
def test_what_needs_values_is_a_wait(look, launches) -> None:
    from launch_counter import count

    part = count(lambda: look(torch.ones(3)))
    created = 1
    assert part.summary()["waits"] == 1 and part.launches == launches + created


def test_an_operation_on_a_list_is_one_launch_and_several_kernels() -> None:
    from launch_counter import LIST_TENSORS, count

    tensors = [torch.ones(2) for _ in range(2 * LIST_TENSORS + 1)]
    part = count(lambda: torch._foreach_add_(tensors, 1.0))
    assert (part.launches, part.summary()["kernels"]) == (1, 3)


def test_an_accelerator_does_nothing_in_ways_that_are_quick_on_a_cpu() -> None:
    from update_parts import as_on_an_accelerator

    from transducer_gn.common import quick

    assert quick.is_wanted(torch.zeros(1)) and not quick.is_wanted(torch.zeros(1, device="meta"))
    with as_on_an_accelerator():
        assert not quick.is_wanted(torch.zeros(1))


def test_the_encoder_dispatches_the_same_on_real_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    from launch_counter import LaunchCounter
    from planted_step import CHUNK, configuration
    from update_parts import as_on_an_accelerator, encoder_parts

    from transducer_gn.model import activation, conformer
    from transducer_gn.model.transducer import build_model

    config = configuration(BENCHMARKS.parent / "conf" / "mini.yaml", model_encoder="{layer_drop: 0, dropout: 0}")
    expected = encoder_parts(config, 2, 1.0)
    encoder = build_model(config.model).train().encoder
    monkeypatch.setattr(conformer, "channels_last_is_quick", lambda x: False)

    def nudge(gradient, signs, up, away):
        """What an accelerator does, which has no cheap way to see which channels need it."""
        nudges = torch.addcmul(up, signs, away).to(gradient.dtype)
        return torch.addcmul(gradient, gradient.abs(), nudges, value=-1)

    monkeypatch.setattr(activation, "nudge", nudge)
    features, lengths = torch.zeros(2, 100, 80), torch.full((2,), 100)
    with as_on_an_accelerator(), LaunchCounter() as counter:
        with counter.part("encoder"):
            frames, _ = encoder(features, lengths, CHUNK)
        gradient = torch.empty_like(frames)
        with counter.part("encoder backward"):
            frames.backward(gradient)
    for name in ("encoder", "encoder backward"):
        real, meta = counter.parts[name].by_operation(), expected[name].by_operation()
        # How a convolution lays its result out differs, and so may the number of copies that follow, by one per layer.
        assert abs(real.pop("aten::clone") - meta.pop("aten::clone")) <= config.model.encoder.layers
        # Numbers of the host, such as that of frames, cannot be told from others on a CPU.
        for host in ("aten::rand", "aten::sub", "aten::div", "aten::clamp", "aten::floor_divide"):
            real.pop(host, None), meta.pop(host, None)
        assert real == meta
