"""Invariant: the chunk mask is its definition frame by frame; draws for training follow their distribution, come from
the given generator alone, and can be repeated from its state.
"""

from collections import Counter

import pytest
import torch
from model_oracles import visible_to

from transducer_gn.common.errors import UserError
from transducer_gn.config import StreamingConfig
from transducer_gn.model.chunk import (
    FULL_CONTEXT,
    Chunk,
    draw_chunk,
    evaluation_chunk,
    valid_frames,
    visible_frames,
)


@pytest.mark.parametrize(("size", "left"), [(None, None), (1, 0), (1, 3), (2, 4), (4, None), (5, 0), (25, 25)])
@pytest.mark.parametrize("frames", [1, 7, 13])
def test_mask_is_its_definition(size: int | None, left: int | None, frames: int) -> None:
    mask = visible_frames(Chunk(size, left), frames, torch.device("cpu"))
    assert mask.tolist() == [[visible_to(size, left, i, j) for j in range(frames)] for i in range(frames)]


def test_valid_frames_are_those_within_the_length() -> None:
    assert valid_frames(torch.tensor([0, 2, 3]), 3).tolist() == [
        [False, False, False],
        [True, True, False],
        [True, True, True],
    ]


def test_draws_follow_their_distribution() -> None:
    """Counted against the definition for every number that can be drawn."""
    config = StreamingConfig(max_chunk=25, left_chunks=4)
    frames = 101
    expected = Counter(None if n > 0.75 * frames else n % 25 + 1 for n in range(1, frames))
    generator = torch.Generator().manual_seed(0)
    draws = [draw_chunk(config, frames, generator) for _ in range(20000)]
    counts = Counter(chunk.size for chunk in draws)
    assert set(counts) == set(expected)
    for size, count in expected.items():
        mean = 20000 * count / (frames - 1)
        assert counts[size] == pytest.approx(mean, abs=5 * mean**0.5)
    assert all(chunk.left == 4 * chunk.size for chunk in draws if chunk.size)


def test_draws_come_from_the_generator_alone_and_repeat_from_its_state() -> None:
    config = StreamingConfig(left_chunks=None)
    generator = torch.Generator().manual_seed(5)
    draw_chunk(config, 300, generator)
    state = generator.get_state()
    first = [draw_chunk(config, 300, generator) for _ in range(20)]
    assert all(chunk.left is None for chunk in first)
    generator.set_state(state)
    before = torch.get_rng_state()
    assert [draw_chunk(config, 300, generator) for _ in range(20)] == first
    assert torch.equal(torch.get_rng_state(), before)


def test_without_a_share_of_full_context_every_batch_has_a_chunk() -> None:
    generator = torch.Generator().manual_seed(0)
    config = StreamingConfig(max_chunk=4, full_context_share=0.0, left_chunks=None, chunk=4)
    draws = [draw_chunk(config, 60, generator) for _ in range(500)]
    assert {chunk.size for chunk in draws} == {1, 2, 3, 4}
    config = StreamingConfig(full_context_share=1.0)
    assert {draw_chunk(config, 60, generator) for _ in range(20)} == {FULL_CONTEXT}


def test_draws_are_rounded_up_to_chunks_of_the_front_end() -> None:
    config = StreamingConfig(max_chunk=25, left_chunks=4)
    for seed in range(60):
        plain, rounded = (draw_chunk(config, 300, torch.Generator().manual_seed(seed), n) for n in (1, 8))
        if plain.size is None:
            assert rounded == FULL_CONTEXT
        else:
            size = next(size for size in (8, 16, 24, 32) if size >= plain.size)
            assert rounded == Chunk(size, 4 * size)


def test_full_context_where_there_is_nothing_to_draw() -> None:
    generator = torch.Generator()
    assert draw_chunk(StreamingConfig(dynamic_chunks=False), 100, generator) == FULL_CONTEXT
    assert draw_chunk(StreamingConfig(), 1, generator) == FULL_CONTEXT


def test_evaluation_uses_the_fixed_chunk() -> None:
    assert evaluation_chunk(StreamingConfig(chunk=16, left_context=64)) == Chunk(16, 64)
    assert evaluation_chunk(StreamingConfig(chunk=8, left_context=None)) == Chunk(8, None)
    assert evaluation_chunk(StreamingConfig(chunk=None)) == FULL_CONTEXT


@pytest.mark.parametrize(("size", "left"), [(4, 6), (4, -4), (0, 0), (None, 8)])
def test_impossible_chunks_are_refused(size: int | None, left: int | None) -> None:
    with pytest.raises(UserError, match="chunk|left context"):
        Chunk(size, left)
