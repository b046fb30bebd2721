"""Invariant: streams give exactly the vectors of the pass over the whole utterance, however the audio is cut and
whatever other streams run beside them, as soon as they can, and remember no more than their left context.
"""

import numpy as np
import pytest
import torch
from small_moonshine import PUBLISHED_FILE, SMALL, audio, batch, needs_published_file, small_moonshine
from torch import Tensor

from transducer_gn.common.errors import UserError
from transducer_gn.model.moonshine import MoonshineEncoder
from transducer_gn.model.moonshine_context import FULL_CONTEXT, Context, frames
from transducer_gn.model.moonshine_file import read_moonshine_tiny
from transducer_gn.model.moonshine_stream import MoonshineStream, StreamingMoonshine

CONTEXTS = [
    Context(chunk, right, left)
    for chunk, right in ((960, 0), (1280, 0), (2560, 1500), (10240, 0), (10240, 5120), (1280, 3000))
    for left in (0, 1, 3, None)
]


def run_beside_each_other(streaming: StreamingMoonshine, utterances: list[Tensor], seed: int) -> list[Tensor]:
    """Feed random pieces, each utterance from a random round on; gives the vectors of each."""
    random = np.random.default_rng(seed)
    starts = random.integers(0, 6, len(utterances))
    streams: dict[int, MoonshineStream] = {}
    fed = [0] * len(utterances)
    vectors: list[list[Tensor]] = [[] for _ in utterances]
    for round_number in range(1000):
        active = [i for i in range(len(utterances)) if starts[i] <= round_number]
        for i in active:
            stream = streams.setdefault(i, streaming.open())
            if stream.finished:
                continue
            piece = utterances[i][fed[i] : fed[i] + int(random.integers(0, 4000))]
            fed[i] += len(piece)
            stream.accept(piece)
            if fed[i] == len(utterances[i]) and random.random() < 0.7:
                stream.finish()
        for i, new in zip(active, streaming.advance([streams[i] for i in active]), strict=True):
            vectors[i].append(new)
        if len(streams) == len(utterances) and all(stream.finished for stream in streams.values()):
            break
    return [torch.cat(parts) for parts in vectors]


def whole(encoder: MoonshineEncoder, samples: Tensor, context: Context, layers: tuple[int, ...]) -> Tensor:
    """Vectors [K, E] of one utterance."""
    with torch.no_grad():
        return encoder.features(*batch([samples]), context, layers)[0][0]


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda c: f"{c.chunk}-{c.right}-{c.left}")
def test_streams_equal_the_whole_pass(context: Context) -> None:
    encoder = small_moonshine()
    chunk, right = context.chunk, context.right
    # Ends on a chunk, just after one, within its right context, too short for a frame, and on half a step.
    lengths = [2 * chunk, 2 * chunk + 1, chunk + right, 3 * chunk + right // 2, 2 * chunk + 170, 894, 895, 14000, 0]
    utterances = audio(*lengths, seed=chunk)
    streamed = run_beside_each_other(StreamingMoonshine(encoder, context, (1, 3)), utterances, seed=chunk + right)
    for samples, vectors in zip(utterances, streamed, strict=True):
        expected = whole(encoder, samples, context, (1, 3))
        assert len(vectors) == len(expected)
        torch.testing.assert_close(vectors, expected, rtol=0, atol=2e-5)


def test_vectors_come_as_soon_as_their_chunk_and_its_right_context_are_there() -> None:
    streaming = StreamingMoonshine(small_moonshine(), Context(2560, 1000))
    stream = streaming.open()
    (samples,) = audio(10240)
    arrived = {}
    for end in range(20, 10241, 20):
        stream.accept(samples[end - 20 : end])
        if count := len(streaming.advance([stream])[0]):
            arrived[end] = count
    assert arrived == {2560 + 1000: 8, 2 * 2560 + 1000: 8, 3 * 2560 + 1000: 8}
    stream.finish()
    assert len(streaming.advance([stream])[0]) == 8


def storage(stream: MoonshineStream) -> int:
    """Numbers that a stream keeps alive, also through views."""
    tensors = [stream.samples, stream.waves, stream.projected, stream.last, *stream.memory]
    return sum(tensor.untyped_storage().nbytes() // tensor.element_size() for tensor in tensors)


def test_memory_does_not_grow_with_the_stream() -> None:
    streaming = StreamingMoonshine(small_moonshine(), Context(2560, 640, 2))
    streams = [streaming.open() for _ in range(3)]
    sizes = []
    for _ in range(30):
        for stream in streams:
            stream.accept(torch.randn(2560))
        streaming.advance(streams)
        sizes.append(storage(streams[0]))
    left = frames(5 * 2560) - frames(3 * 2560) + 1
    # Keys and values, second outputs of the look-ahead, wave outputs, audio, and the last frame.
    assert max(sizes) <= 3 * left * 2 * SMALL.dim + 8 * 2 * SMALL.dim + 10 * SMALL.dim + (2560 + 200) + SMALL.dim
    assert max(sizes[10:20]) == max(sizes[20:])
    tensors = [streams[0].samples, streams[0].waves, streams[0].projected, streams[0].last, *streams[0].memory]
    assert all(tensor.untyped_storage().nbytes() == 4 * tensor.numel() for tensor in tensors)


def test_unlimited_left_context_remembers_every_frame() -> None:
    streaming = StreamingMoonshine(small_moonshine(), Context(2560))
    stream = streaming.open()
    for chunks in range(1, 5):
        stream.accept(torch.randn(2560))
        streaming.advance([stream])
        assert {memory.shape[1] for memory in stream.memory} == {frames(2560 * chunks)}


def test_layers_above_the_chosen_ones_are_not_run() -> None:
    streaming = StreamingMoonshine(small_moonshine(), Context(2560), (1,))
    with torch.no_grad():
        for parameter in streaming.encoder.layers[1].parameters():
            parameter.fill_(float("nan"))
    stream = streaming.open()
    stream.accept(torch.randn(3000))
    (vectors,) = streaming.advance([stream])
    assert len(stream.memory) == 1 and torch.all(vectors.isfinite())


def test_no_streams_and_a_finished_one() -> None:
    streaming = StreamingMoonshine(small_moonshine(), Context(2560))
    assert streaming.advance([]) == []
    stream = streaming.open()
    stream.finish()
    assert streaming.advance([stream])[0].shape == (0, SMALL.dim)
    with pytest.raises(ValueError, match="finished"):
        stream.accept(torch.zeros(1))
    with pytest.raises(UserError, match="chunk: streaming needs chunks"):
        StreamingMoonshine(small_moonshine(), FULL_CONTEXT)


@needs_published_file
@pytest.mark.parametrize("context", [Context(10240), Context(10240, 5120, 4), Context(5120, 0, 0)])
def test_published_encoder_streams_as_it_encodes_the_whole(context: Context) -> None:
    encoder = read_moonshine_tiny(PUBLISHED_FILE)
    utterances = audio(40000, 25600, 31000)
    streamed = run_beside_each_other(StreamingMoonshine(encoder, context, (2, 4, 6)), utterances, seed=1)
    for samples, vectors in zip(utterances, streamed, strict=True):
        # A few of the residual numbers are as large as 200.
        torch.testing.assert_close(vectors, whole(encoder, samples, context, (2, 4, 6)), rtol=1e-5, atol=2e-4)
