"""Invariant: the multiplications that the encoder's benchmark races against are those that torch counts in the encoder,
forward and backward, but for the depthwise convolutions, which it says it leaves out.
"""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from small_models import SMALL_ENCODER
from torch.utils.flop_counter import FlopCounterMode

from transducer_gn.model.activation import Balancer
from transducer_gn.model.encoder_stream import StreamingEncoder

UTTERANCES, FEATURE_FRAMES, FRAMES = 3, 103, 25


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    """The benchmark's file as a module."""
    path = Path(__file__).parents[1] / "benchmarks" / "encoder.py"
    specification = importlib.util.spec_from_file_location("encoder_benchmark", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def counted(run: Callable[[], None]) -> tuple[int, int]:
    """Operations that torch counts in matrix products, and in convolutions on their way forward."""
    with FlopCounterMode(display=False) as counter:
        run()
    counts = {str(operator): count for operator, count in counter.get_flop_counts()["Global"].items()}
    products = sum(counts.get(f"aten.{name}", 0) for name in ("mm", "addmm", "bmm", "baddbmm"))
    return products, counts.get("aten.convolution", 0)


@pytest.fixture
def runs(benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch) -> object:
    """The encoder's runs, without balancers: these write sums as products with a vector."""
    monkeypatch.setattr(Balancer, "forward", lambda self, x, valid: x)
    return benchmark.EncoderRuns(SMALL_ENCODER, UTTERANCES, FEATURE_FRAMES)


def test_multiplications_are_those_of_the_encoder(benchmark: ModuleType, runs: object) -> None:
    subsampling = benchmark.subsampling_shapes(SMALL_ENCODER, UTTERANCES, FRAMES)
    layers = benchmark.layer_shapes(SMALL_ENCODER, UTTERANCES, FRAMES) * SMALL_ENCODER.layers
    expected = benchmark.flops(subsampling[3:] + layers, backward=True)
    assert counted(lambda: runs.forward_backward(UTTERANCES))[0] == expected
    # A training pass forward, since torch does not count its fused attention on the CPU.
    encoder = runs.encoder.train()
    products, convolutions = counted(lambda: encoder(runs.features, runs.lengths, benchmark.CHUNK))
    assert products == benchmark.flops(subsampling[3:] + layers, backward=False)
    depthwise = 2 * UTTERANCES * FRAMES * SMALL_ENCODER.dim * SMALL_ENCODER.kernel * SMALL_ENCODER.layers
    assert convolutions == benchmark.flops(subsampling[:3], backward=False) + depthwise


@pytest.mark.parametrize("backward", [False, True])
def test_what_it_multiplies_is_what_it_counts(benchmark: ModuleType, backward: bool) -> None:
    alone = benchmark.Multiplications(SMALL_ENCODER, UTTERANCES, FRAMES)
    products, _ = counted(alone.forward_backward if backward else alone.forward)
    assert products == benchmark.flops(alone.shapes, backward)


def test_streams_of_the_benchmark_give_all_frames(runs: object, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = []
    advance = StreamingEncoder.advance
    monkeypatch.setattr(StreamingEncoder, "advance", lambda self, streams: frames.extend(advance(self, streams)))
    runs.stream(UTTERANCES)
    assert sum(map(len, frames)) == UTTERANCES * FRAMES
