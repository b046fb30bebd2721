"""Invariant: under full context this is the published formula; under chunks, a frame depends on all audio up to its
chunk's end + right and on nothing after it; and no utterance depends on others in its batch or on padding.
"""

import pytest
import torch
from small_moonshine import PUBLISHED_FILE, SMALL, audio, batch, needs_published_file, small_moonshine
from torch import Tensor
from torch.nn import functional

from transducer_gn.common.errors import UserError
from transducer_gn.model import moonshine_layer
from transducer_gn.model.moonshine import MoonshineEncoder, Statistics, _divides_attention, cumulative_statistics
from transducer_gn.model.moonshine_context import FULL_CONTEXT, Context, frames
from transducer_gn.model.moonshine_file import read_moonshine_tiny

CONTEXTS = [Context(1280), Context(2560, 1500), Context(2560, 0, 1), Context(1280, 2000, 2), Context(2560, 4000, 0)]
ALL = (1, 2, 3)


@pytest.fixture(autouse=True, params=[10, 128, None], ids=["stripes", "one stripe", "as on an accelerator"])
def stripe(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it with short utterances in one stripe, in several of a few chunks each, and without stripes."""
    if request.param is None:
        monkeypatch.setattr("transducer_gn.model.moonshine._divides_attention", lambda device: False)
    else:
        monkeypatch.setattr("transducer_gn.model.moonshine.STRIPE", request.param)


def plain(encoder: MoonshineEncoder, samples: Tensor) -> Tensor:
    """The published formula for one whole utterance [N], operation by operation; frames [F, D * layers]."""
    shape = encoder.shape
    x = functional.group_norm(torch.tanh(encoder.wave(samples[None, None])), 1, encoder.norm.weight, encoder.norm.bias)
    x = functional.gelu(encoder.third(functional.gelu(encoder.second(x))))[0].T
    outputs = []
    for number, layer in enumerate(encoder.layers, start=1):
        y = normalised(x, layer.attention_norm.weight)
        heads = []
        for head in range(shape.heads):
            size = shape.dim // shape.heads
            part = slice(head * size, (head + 1) * size)
            attention = layer.attention
            query, key, value = (m(y)[:, part] for m in (attention.query, attention.key, attention.value))
            scores = turned(query, shape.rotated) @ turned(key, shape.rotated).T / size**0.5
            heads.append(scores.softmax(1) @ value)
        x = x + layer.attention.output(torch.cat(heads, dim=1))
        x = x + layer.feedforward(normalised(x, layer.feedforward_norm.weight))
        outputs.append(normalised(x, encoder.output_norm.weight) if number == shape.layers else x)
    return torch.cat(outputs, dim=1)


def normalised(x: Tensor, weight: Tensor) -> Tensor:
    """Each frame of `x` [T, D] with mean 0 and variance 1, then scaled."""
    return (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True, correction=0) + 1e-5).sqrt() * weight


def turned(x: Tensor, rotated: int) -> Tensor:
    """Pairs of numbers of `x` [T, A] as complex ones, multiplied by exp(i t 10000^(-pair / pairs))."""
    pairs = torch.view_as_complex(x[:, :rotated].unflatten(1, (-1, 2)).contiguous())
    rates = 10000.0 ** (-torch.arange(rotated // 2) / (rotated // 2))
    angles = torch.arange(len(x)).unsqueeze(1) * rates
    return torch.cat(
        [torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(1), x[:, rotated:]], 1
    )


def encode(encoder: MoonshineEncoder, samples: Tensor, context: Context, layers: tuple[int, ...] = ALL) -> Tensor:
    """Frames [F, E] of one utterance [N]."""
    with torch.no_grad():
        return encoder(*batch([samples]), context, layers)[0][0]


def test_full_context_is_the_published_formula() -> None:
    encoder = small_moonshine()
    for samples in audio(895, 5000, 20001):
        with torch.no_grad():
            expected = plain(encoder, samples)
        torch.testing.assert_close(encode(encoder, samples, FULL_CONTEXT), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("context", CONTEXTS)
def test_the_first_chunk_is_full_context_of_what_it_has_heard(context: Context) -> None:
    encoder = small_moonshine()
    (samples,) = audio(12000)
    own = context.block(0, 12000).own
    heard = encode(encoder, samples[: context.heard(0, 12000)], FULL_CONTEXT)
    torch.testing.assert_close(encode(encoder, samples, context)[:own], heard[:own], rtol=0, atol=2e-5)


@pytest.mark.parametrize("context", CONTEXTS)
def test_audio_cut_at_a_chunks_end_and_right_gives_the_same_frames(context: Context) -> None:
    encoder = small_moonshine()
    (samples,) = audio(16000)
    whole = encode(encoder, samples, context)
    for number in range(context.chunks(16000)):
        known = frames(context.end(number, 16000))
        cut = encode(encoder, samples[: context.heard(number, 16000)], context)
        torch.testing.assert_close(cut[:known], whole[:known], rtol=0, atol=2e-5)


@pytest.mark.parametrize("context", CONTEXTS)
def test_what_comes_later_changes_nothing_and_what_is_heard_changes_all(context: Context) -> None:
    """Every single frame, by gradients: of a chunk's frames with respect to the samples."""
    encoder = small_moonshine()
    samples, lengths = batch(audio(9000))
    samples.requires_grad_()
    encoded, _ = encoder(samples, lengths, context)
    for number in range(context.chunks(9000)):
        block = context.block(number, 9000)
        if block.own == 0:
            continue
        # A random direction, since numbers that are normalised sum up to a constant.
        direction = torch.randn(block.own, SMALL.dim, generator=torch.Generator().manual_seed(number))
        value = (encoded[0, block.first : block.first + block.own] * direction).sum()
        (slope,) = torch.autograd.grad(value, samples, retain_graph=True)
        heard = context.heard(number, 9000)
        assert torch.all(slope[0, heard:] == 0)
        # The last wave output that fits may end up to 63 samples before.
        assert torch.all(slope[0, heard - 200 : heard - 64] != 0)
        assert torch.all(slope[0, :64] != 0)  # through the statistics, however short the left context


def test_statistics_of_long_audio_are_exact() -> None:
    """Small variations about a large mean, over more numbers than 32-bit sums can take."""
    waves = 0.9 + 1e-3 * torch.randn(1, 100000, 8, generator=torch.Generator().manual_seed(0))
    heard = torch.tensor([[10, 50000, 100000]])
    statistics = cumulative_statistics(waves, heard)
    mean, rate = statistics.mean_and_rate(torch.float64)
    for column, count in enumerate(heard[0].tolist()):
        known = waves[0, :count].double()
        torch.testing.assert_close(mean[0, column], known.mean(), rtol=1e-7, atol=0)
        torch.testing.assert_close(rate[0, column], (known.var(correction=0) + 1e-5).rsqrt(), rtol=1e-4, atol=0)


@pytest.mark.parametrize("left", [0, 1, 2])
def test_attention_sees_so_many_chunks_to_the_left(left: int) -> None:
    """One layer and statistics that are held fixed: then only attention reaches back."""
    encoder = small_moonshine()
    samples, lengths = batch(audio(12800))
    fixed = Statistics(*(torch.full((1, 5), value, dtype=torch.float64) for value in (1.0, 0.1, 0.5)))
    samples.requires_grad_()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transducer_gn.model.moonshine.cumulative_statistics", lambda waves, heard: fixed)
        encoded, counts = encoder(samples, lengths, Context(2560, 0, left), (1,))
    (slope,) = torch.autograd.grad(encoded[0, int(counts[0]) - 1].sum(), samples)
    first = frames((4 - left) * 2560)
    assert int(slope[0].nonzero()[0]) in range(384 * first, 384 * first + 2)


@pytest.mark.parametrize("context", [FULL_CONTEXT, *CONTEXTS])
def test_neither_padding_nor_others_in_the_batch_matter(context: Context) -> None:
    encoder = small_moonshine()
    utterances = audio(7000, 894, 12345, 2560, 895, 5121)
    samples, lengths = batch(utterances, padding=7.0)
    with torch.no_grad():
        together, counts = encoder(samples, lengths, context, ALL)
        vectors, vector_counts = encoder.features(samples, lengths, context, ALL)
    for row, utterance in enumerate(utterances):
        assert counts[row] == frames(len(utterance))
        alone = encode(encoder, utterance, context)
        torch.testing.assert_close(together[row, : counts[row]], alone, rtol=0, atol=2e-5)
        assert torch.all(together[row, counts[row] :] == 0) and torch.all(vectors[row, vector_counts[row] :] == 0)
        with torch.no_grad():
            (expected,), _ = encoder.features(*batch([utterance]), context, ALL)
        torch.testing.assert_close(vectors[row, : vector_counts[row]], expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
def test_stripes_of_any_size_give_the_same_frames_and_gradients(
    context: Context, half: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = small_moonshine()
    samples, lengths = batch(audio(16000, 11000), padding=7.0)
    found = []
    for size in (1000, 1, 14, 30):
        monkeypatch.setattr("transducer_gn.model.moonshine.STRIPE", size)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            encoded, _ = encoder(samples, lengths, context, ALL)
        directions = torch.randn(encoded.shape, generator=torch.Generator().manual_seed(0))
        gradients = torch.autograd.grad((encoded.float() * directions).sum(), list(encoder.layers.parameters()))
        found.append([encoded.float().detach(), *gradients])
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            # Halves have three digits, and frames go through three layers.
            limit = 0.03 * float(one.abs().max()) if half else 1e-4
            torch.testing.assert_close(other, one, rtol=0, atol=limit)


def test_a_layer_attends_in_one_call_where_launches_count(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _divides_attention(torch.device("cpu")) and not _divides_attention(torch.device("cuda"))
    encoder, calls, attend = small_moonshine(), [], moonshine_layer.attend
    monkeypatch.setattr(moonshine_layer, "attend", lambda *arguments: calls.append(arguments) or attend(*arguments))
    monkeypatch.setattr("transducer_gn.model.moonshine.STRIPE", 10)
    counts = []
    for divides in (True, False):
        monkeypatch.setattr("transducer_gn.model.moonshine._divides_attention", lambda device, answer=divides: answer)
        calls.clear()
        encoder(*batch(audio(16000), padding=0.0), Context(1280), ALL)
        counts.append(len(calls))
    assert counts[0] > 2 * counts[1] and counts[1] == len(encoder.layers)


def test_outputs_of_chosen_layers_stand_side_by_side() -> None:
    encoder = small_moonshine()
    (samples,) = audio(6000)
    everything = encode(encoder, samples, Context(2560)).unflatten(1, (3, SMALL.dim))
    chosen = encode(encoder, samples, Context(2560), (1, 3))
    torch.testing.assert_close(chosen, everything[:, [0, 2]].flatten(1), rtol=0, atol=0)
    torch.testing.assert_close(encode(encoder, samples, Context(2560), None), everything[:, 2], rtol=0, atol=0)


def test_gradients_reach_every_parameter() -> None:
    encoder = small_moonshine()
    vectors, _ = encoder.features(*batch(audio(6000, 4000)), Context(2560, 640), ALL)
    (vectors * torch.randn(vectors.shape, generator=torch.Generator().manual_seed(0))).sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None and torch.all(parameter.grad.isfinite()), name
        assert parameter.grad.abs().sum() > 0, name


def test_nothing_but_too_short_utterances() -> None:
    vectors, counts = small_moonshine().features(*batch(audio(800, 3)), Context(2560), (1, 2))
    assert vectors.shape == (2, 0, 48) and counts.tolist() == [0, 0]


@pytest.mark.parametrize("layers", [(), (0,), (4,), (2, 1), (2, 2)])
def test_impossible_layers_are_refused_by_name(layers: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="layers: must be rising numbers from 1 to 3"):
        small_moonshine().chosen_layers(layers)


@needs_published_file
def test_published_encoder_is_as_exact_as_its_numbers() -> None:
    encoder = read_moonshine_tiny(PUBLISHED_FILE)
    samples, lengths = batch(audio(80000))
    with torch.no_grad():
        single, _ = encoder(samples, lengths, Context(10240, 5120))
        double, _ = encoder.double()(samples.double(), lengths, Context(10240, 5120))
    torch.testing.assert_close(single.double(), double, rtol=0, atol=3e-5)


@needs_published_file
@pytest.mark.parametrize("context", [Context(10240), Context(10240, 5120), Context(5120, 2560, 4)])
def test_published_encoder_gives_the_same_frames_for_cut_audio(context: Context) -> None:
    encoder = read_moonshine_tiny(PUBLISHED_FILE)
    (samples,) = audio(40000)
    whole = encode(encoder, samples, context, (2, 4, 6))
    for number in (0, 2):
        known = frames(context.end(number, 40000))
        cut = encode(encoder, samples[: context.heard(number, 40000)], context, (2, 4, 6))
        # A few of the residual numbers are as large as 200.
        torch.testing.assert_close(cut[:known], whole[:known], rtol=1e-5, atol=2e-4)
