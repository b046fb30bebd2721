"""Invariant: the arithmetic of frames, chunks and steps of 20 ms says what convolutions without padding give, chunks
share out every frame once, and no vector is mixed of a frame that its chunk cannot know.
"""

import pytest
import torch
from lhotse.utils import compute_num_frames
from torch.nn import functional

from transducer_gn.common.errors import UserError
from transducer_gn.model.moonshine import mixed
from transducer_gn.model.moonshine_context import (
    FRAME_STEP,
    FRAME_WINDOW,
    FULL_CONTEXT,
    OUTPUT_STEP,
    Context,
    frames,
    mixture,
    outputs,
    wave_outputs,
)

CONTEXTS = [Context(960), Context(1280, 700), Context(10240), Context(10240, 5120), Context(2560, 4000)]


def convolved(samples: int) -> tuple[int, int]:
    """Wave outputs and frames of so many samples, by convolutions."""
    x = torch.zeros(1, 1, samples)
    sizes = []
    for window, step in ((127, 64), (7, 3), (3, 2)):
        if x.shape[2] < window:
            return (sizes[0] if sizes else 0), 0
        x = functional.conv1d(x, torch.zeros(1, 1, window), stride=step)
        sizes.append(x.shape[2])
    return sizes[0], sizes[2]


def test_lengths_are_those_of_the_convolutions() -> None:
    for samples in [*range(0, 3000, 7), 126, 127, 894, 895, 896, 1278, 1279, 10240, 320000]:
        assert (wave_outputs(samples), frames(samples)) == convolved(samples)
    assert (FRAME_STEP, FRAME_WINDOW) == (384, 895)


def test_outputs_are_counted_as_lhotse_counts_frames() -> None:
    for samples in range(FRAME_WINDOW, 12000, 13):
        assert outputs(samples) == compute_num_frames(samples / 16000, 0.02, 16000)
    assert outputs(FRAME_WINDOW - 1) == 0


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("samples", [900, 10239, 10240, 10241, 33333])
def test_chunks_share_out_all_frames_in_order(context: Context, samples: int) -> None:
    blocks = [context.block(number, samples) for number in range(context.chunks(samples))]
    assert [block.first + i for block in blocks for i in range(block.own)] == list(range(frames(samples)))
    for number, block in enumerate(blocks):
        heard = min((number + 1) * context.chunk + context.right, samples)
        ends = [FRAME_STEP * frame + FRAME_WINDOW for frame in range(frames(samples))]
        assert block.first + block.size == sum(end <= heard for end in ends)


def test_frames_of_chunks_of_640_ms() -> None:
    context = Context(10240, 5120)
    blocks = [context.block(number, 16000 * 20) for number in range(6)]
    assert [block.own for block in blocks] == [25, 27, 26, 27, 27, 26]
    assert [block.ahead for block in blocks] == [13, 13, 14, 13, 13, 14]
    assert [context.heard(n, 16000 * 20) for n in (0, 1)] == [15360, 25600]


@pytest.mark.parametrize("context", [*CONTEXTS, FULL_CONTEXT])
@pytest.mark.parametrize("samples", [895, 10390, 10480, 20481, 33333])
def test_outputs_are_mixed_by_time_of_frames_that_their_chunk_has(context: Context, samples: int) -> None:
    """Of frames whose value is the time of their end, outputs give their own end wherever two frames are at hand."""
    ends = torch.tensor([[FRAME_STEP * i + FRAME_WINDOW] for i in range(frames(samples))], dtype=torch.float64)
    count = outputs(samples)
    times = mixed(mixture(0, count, context, samples), ends).flatten().tolist()
    for number, time in enumerate(times):
        end = samples if context.chunk is None else context.end(number * OUTPUT_STEP // context.chunk, samples)
        last = FRAME_STEP * (frames(end) - 1) + FRAME_WINDOW
        assert time == pytest.approx(min(max(OUTPUT_STEP * (number + 1), FRAME_WINDOW), last))


def test_mixtures_of_a_part_are_those_of_the_whole() -> None:
    context, samples = Context(2560, 640), 16000
    values = torch.randn(frames(samples), 3, generator=torch.Generator().manual_seed(0))
    whole = mixed(mixture(0, outputs(samples), context, samples), values)
    block = context.block(2, samples)
    part = mixed(mixture(16, 24, context, 3 * 2560 + 640), values[block.first - 1 :], block.first - 1)
    torch.testing.assert_close(part, whole[16:24], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"chunk": 1000}, "chunk: must be a multiple of 320"),
        ({"chunk": 640}, "chunk: .* have a frame's 895"),
        ({"chunk": 10240, "right": -1}, "right context: must be 0 or more"),
        ({"chunk": 10240, "left": -1}, "left context: must be 0 or more"),
        ({"right": 320}, "context: without chunks"),
        ({"left": 2}, "context: without chunks"),
    ],
)
def test_impossible_contexts_are_refused_by_name(settings: dict[str, int], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        Context(**settings)
