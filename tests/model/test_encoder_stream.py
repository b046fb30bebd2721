"""Invariant: streams give exactly the frames of the masked pass over the whole utterance, however the features are cut
and whatever other streams run beside them, and remember no more than their left context.
"""

import numpy as np
import pytest
import torch
from small_models import small_encoder
from torch import Tensor

from transducer_gn.common.errors import UserError
from transducer_gn.model.chunk import FULL_CONTEXT, Chunk
from transducer_gn.model.encoder_stream import EncoderStream, StreamingEncoder

CHUNKS = [Chunk(size, left) for size in (2, 4, 8, 16, 25) for left in (0, 2 * size, 4 * size, None)] + [Chunk(1, 3)]


def masked(encoder: torch.nn.Module, features: Tensor, chunk: Chunk) -> Tensor:
    """Frames of a whole utterance `features` [T', F]."""
    with torch.no_grad():
        output, counts = encoder(features.unsqueeze(0), torch.tensor([len(features)]), chunk)
    return output[0, : counts[0]]


def run_beside_each_other(
    streaming: StreamingEncoder, utterances: list[Tensor], starts: list[int], seed: int
) -> list[Tensor]:
    """Feed random pieces, utterance i from round `starts[i]` on; gives the frames of each."""
    random = np.random.default_rng(seed)
    streams: dict[int, EncoderStream] = {}
    fed = [0] * len(utterances)
    frames: list[list[Tensor]] = [[] for _ in utterances]
    done: set[int] = set()
    for round_number in range(10000):
        if len(done) == len(utterances):
            break
        for i, features in enumerate(utterances):
            if round_number == starts[i]:
                streams[i] = streaming.open()
            if i not in streams or i in done:
                continue
            piece = features[fed[i] : fed[i] + int(random.integers(0, 60))]
            fed[i] += len(piece)
            streams[i].accept(piece)
            if fed[i] == len(features) and random.random() < 0.7:
                streams[i].end()
        active = [i for i in streams if i not in done]
        for i, new in zip(active, streaming.advance([streams[i] for i in active]), strict=True):
            frames[i].append(new)
            if streams[i].ended:
                done.add(i)
    return [torch.cat(parts) for parts in frames]


@pytest.mark.parametrize("chunk", CHUNKS, ids=lambda chunk: f"{chunk.size}-{chunk.left}")
def test_streams_equal_the_masked_pass(chunk: Chunk) -> None:
    encoder = small_encoder()
    generator = torch.Generator().manual_seed(chunk.size)
    # Ends on a chunk, just after one, and without a single frame are among the lengths.
    lengths = [4 * 2 * chunk.size + 3, 4 * 2 * chunk.size + 7, 5, 3 + 4 * chunk.size, 500, 7, 333]
    utterances = [torch.randn(length, 16, generator=generator) for length in lengths]
    starts = [0, 0, 1, 3, 1, 4, 6]
    outputs = run_beside_each_other(StreamingEncoder(encoder, chunk), utterances, starts, seed=chunk.size)
    for features, output in zip(utterances, outputs, strict=True):
        if len(features) < 7:
            assert len(output) == 0
            continue
        torch.testing.assert_close(output, masked(encoder, features, chunk), rtol=0, atol=1e-4)


def test_frames_come_as_soon_as_their_chunk_is_complete() -> None:
    encoder = small_encoder()
    streaming = StreamingEncoder(encoder, Chunk(4, 8))
    stream = streaming.open()
    features = torch.randn(60, 16, generator=torch.Generator().manual_seed(0))
    counts = []
    for frame in features:
        stream.accept(frame.unsqueeze(0))
        counts.append(len(streaming.advance([stream])[0]))
    # The last frame of a chunk that ends before frame n sees features up to 4 (n - 1) + 7.
    assert [i for i, count in enumerate(counts) if count] == [4 * (n - 1) + 7 for n in (4, 8, 12)]
    assert set(counts) == {0, 4}


def test_one_stream_alone_equals_itself_beside_others() -> None:
    encoder = small_encoder()
    generator = torch.Generator().manual_seed(1)
    utterances = [torch.randn(length, 16, generator=generator) for length in (200, 91, 150)]
    together = run_beside_each_other(StreamingEncoder(encoder, Chunk(4, None)), utterances, [0, 0, 0], seed=1)
    for features, output in zip(utterances, together, strict=True):
        (alone,) = run_beside_each_other(StreamingEncoder(encoder, Chunk(4, None)), [features], [0], seed=2)
        torch.testing.assert_close(output, alone, rtol=0, atol=1e-5)


def storage_elements(stream: EncoderStream) -> int:
    """Everything that a stream keeps alive, also through views."""
    tensors = [stream.features, *(part for cache in stream.caches for part in (cache.memory, cache.history))]
    return sum(tensor.untyped_storage().nbytes() // tensor.element_size() for tensor in tensors)


def test_memory_does_not_grow_with_the_stream() -> None:
    encoder = small_encoder()
    streaming = StreamingEncoder(encoder, Chunk(4, 8))
    streams = [streaming.open() for _ in range(3)]
    sizes = []
    for _ in range(40):
        for stream in streams:
            stream.accept(torch.randn(16, 16))
        streaming.advance(streams)
        sizes.append([storage_elements(stream) for stream in streams])
    assert sizes[5] == sizes[-1]
    # Keys and values of the left context, inputs of the convolution, and no more than a chunk of features.
    layers, left, width, kernel, dim, bands = 3, 8, 32, 5, 24, 16
    assert sizes[-1][0] <= layers * (left * 2 * width + (kernel - 1) * dim) + (4 * 4 + 5) * bands


def test_unlimited_left_context_remembers_everything() -> None:
    streaming = StreamingEncoder(small_encoder(), Chunk(4, None))
    stream = streaming.open()
    for chunks in range(1, 6):
        stream.accept(torch.randn(16, 16))
        streaming.advance([stream])
        assert len(stream.caches[0].memory) == 4 * (chunks - 1)  # a chunk is complete 5 features after its last


def test_no_streams_and_no_features() -> None:
    streaming = StreamingEncoder(small_encoder(), Chunk(4, 8))
    assert streaming.advance([]) == []
    stream = streaming.open()
    assert streaming.advance([stream])[0].shape == (0, 24)
    stream.end()
    assert streaming.advance([stream])[0].shape == (0, 24)
    with pytest.raises(ValueError, match="has ended"):
        stream.accept(torch.zeros(1, 16))


def test_streams_keep_no_graph() -> None:
    streaming = StreamingEncoder(small_encoder(), Chunk(4, 8))
    stream = streaming.open()
    stream.accept(torch.randn(40, 16))
    (frames,) = streaming.advance([stream])
    assert not frames.requires_grad and not stream.caches[0].memory.requires_grad


def test_what_cannot_stream_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="model.encoder.causal"):
        StreamingEncoder(small_encoder(causal=False), Chunk(4, 8))
    with pytest.raises(UserError, match="chunk"):
        StreamingEncoder(small_encoder(), FULL_CONTEXT)
    with pytest.raises(ValueError, match="evaluation"):
        StreamingEncoder(small_encoder().train(), Chunk(4, 8))
