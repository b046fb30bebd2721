"""Invariant: an utterance's frames depend on nothing but its own features within reach of the chunk mask: not on
padding, not on other utterances, not on later chunks; training-only parts are off in evaluation, and seeds repeat
everything.
"""

import pytest
import torch
from small_models import SMALL_FRAMING, small_encoder
from torch import Tensor

from transducer_gn.model.chunk import FULL_CONTEXT, Chunk
from transducer_gn.model.encoder import Encoder

CHUNKS = [FULL_CONTEXT, Chunk(1, 2), Chunk(4, 8), Chunk(5, None), Chunk(16, 0)]


def random_batch(seed: int, utterances: int = 5, longest: int = 160) -> tuple[Tensor, Tensor]:
    """Features with garbage as padding, and random lengths, the shortest that gives a frame among them."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(7, longest + 1, (utterances,), generator=generator)
    lengths[0], lengths[1] = longest, 7
    features = torch.randn(utterances, longest, 16, generator=generator)
    for row, length in enumerate(lengths.tolist()):
        features[row, length:] = 50 * torch.randn(longest - length, 16, generator=generator)
    return features, lengths


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("with_gradients", [True, False])
def test_an_utterance_alone_equals_itself_in_any_padded_batch(causal: bool, chunk: Chunk, with_gradients: bool) -> None:
    encoder = small_encoder(causal=causal)
    for seed in range(3):
        features, lengths = random_batch(seed)
        with torch.set_grad_enabled(with_gradients):
            batch, counts = encoder(features, lengths, chunk)
            for row, length in enumerate(lengths.tolist()):
                alone, count = encoder(features[row : row + 1, :length], lengths[row : row + 1], chunk)
                assert counts[row] == count[0] == alone.shape[1] == ((length - 1) // 2 - 1) // 2
                torch.testing.assert_close(batch[row, : count[0]], alone[0], rtol=0, atol=1e-5)
                assert (batch[row, count[0] :] == 0).all()


def test_padding_leaves_gradients_alone() -> None:
    """In training mode too, where balancers gather statistics: two utterances, with and without more padding."""
    encoder = small_encoder(dropout=0.0, layer_drop=0.0, causal=False).train()
    features, lengths = random_batch(3, utterances=3, longest=60)
    gradients = []
    for extra in (0, 40):
        padded = torch.nn.functional.pad(features, (0, 0, 0, extra), value=9.0)
        output, counts = encoder(padded, lengths, FULL_CONTEXT)
        weight = torch.linspace(-1, 1, output.shape[2])
        loss = sum((output[row, :count] * weight).square().sum() for row, count in enumerate(counts.tolist()))
        gradients.append(torch.autograd.grad(loss, list(encoder.parameters())))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_utterances_too_short_for_a_frame_have_none() -> None:
    encoder = small_encoder()
    with torch.no_grad():
        output, counts = encoder(torch.randn(2, 5, 16), torch.tensor([5, 0]), Chunk(4, 8))
    assert counts.tolist() == [0, 0]
    assert (output == 0).all()


@pytest.mark.parametrize(("size", "left"), [(2, 4), (4, None), (8, 0), (16, 32)])
@pytest.mark.parametrize("with_gradients", [True, False])
def test_later_features_change_no_frame_of_a_finished_chunk(size: int, left: int | None, with_gradients: bool) -> None:
    """Bit for bit. The last frame of a chunk sees features up to 7 after its first."""
    encoder = small_encoder()
    features, lengths = torch.randn(1, 160, 16, generator=torch.Generator().manual_seed(2)), torch.tensor([160])
    frames = int(encoder.framing.encoder_lengths(lengths))
    for chunk_end in range(size, frames, size):
        last_seen = 4 * (chunk_end - 1) + 7
        other = features.clone()
        other[:, last_seen + 1 :] += 1.0
        with torch.set_grad_enabled(with_gradients):
            one, _ = encoder(features, lengths, Chunk(size, left))
            two, _ = encoder(other, lengths, Chunk(size, left))
        assert torch.equal(one[:, :chunk_end], two[:, :chunk_end])
        assert not torch.equal(one[:, chunk_end:], two[:, chunk_end:])


def test_left_context_limits_what_attention_sees() -> None:
    """With one layer, a frame sees attention's left context and the convolution's, and nothing before."""
    encoder = small_encoder(layers=1, kernel=3)
    features, lengths = torch.randn(1, 160, 16, generator=torch.Generator().manual_seed(2)), torch.tensor([160])
    other = features.clone()
    other[:, 3] += 1.0  # seen by outputs 0 and 1 alone
    for left, first_free in [(0, 4 + 2), (4, 8 + 2), (8, 12 + 2)]:
        with torch.no_grad():
            one, _ = encoder(features, lengths, Chunk(4, left))
            two, _ = encoder(other, lengths, Chunk(4, left))
        differs = (one != two).any(dim=2)[0]
        assert differs[first_free - 1] and not differs[first_free:].any()


def test_full_context_sees_everything_and_a_causal_convolution_only_the_past() -> None:
    features, lengths = torch.randn(1, 80, 16, generator=torch.Generator().manual_seed(2)), torch.tensor([80])
    other = features.clone()
    other[:, -4] += 1.0
    for causal in (True, False):
        encoder = small_encoder(causal=causal)
        with torch.no_grad():
            assert (encoder(features, lengths, FULL_CONTEXT)[0] != encoder(other, lengths, FULL_CONTEXT)[0]).all()
            # Frames that attend only to themselves leave the convolution's reach visible.
            one, two = encoder(features, lengths, Chunk(1, 0))[0], encoder(other, lengths, Chunk(1, 0))[0]
        differs = (one != two).any(dim=2)
        frames = differs.shape[1]
        # Feature 76 is first seen by output 18 of 19; three non-causal layers of kernel 5 reach 6 frames back.
        first = frames - 1 if causal else frames - 1 - 6
        assert differs[0].tolist() == [i >= first for i in range(frames)]


def test_gradients_reach_every_parameter() -> None:
    encoder = small_encoder().train()
    torch.manual_seed(0)
    features, lengths = random_batch(1)
    output, _ = encoder(features, lengths, Chunk(4, 8), warmup=0.5)
    (output * torch.randn_like(output)).sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all() and parameter.grad.abs().max() > 0, name


def test_new_parameters_have_gradients_from_the_first_step_on() -> None:
    """A log-scale of a tensor that starts at zero would have none."""
    torch.manual_seed(0)
    encoder = Encoder(small_encoder().config, SMALL_FRAMING).train()
    output, _ = encoder(torch.randn(2, 90, 16), torch.tensor([90, 70]), FULL_CONTEXT, warmup=0.0)
    (output * torch.randn_like(output)).sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad.abs().max() > 0, name


def test_seeds_repeat_training_and_nothing_is_drawn_in_evaluation() -> None:
    encoder = small_encoder(layer_drop=0.5)
    features, lengths = random_batch(1)
    encoder.train()
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(encoder(features, lengths, FULL_CONTEXT, warmup=0.5)[0])
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])
    encoder.eval()
    state = torch.get_rng_state()
    first, second = encoder(features, lengths, FULL_CONTEXT, warmup=0.0)[0], encoder(features, lengths, FULL_CONTEXT)[0]
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, second)


@pytest.mark.parametrize(("warmup", "share"), [(0.0, 0.1), (0.4, 0.5), (0.9, 1.0), (1.0, 1.0)])
def test_warmup_fades_layers_in(warmup: float, share: float) -> None:
    """One layer without dropout: its result is the mixture of its input and its output."""
    encoder = small_encoder(layers=1, dropout=0.0, layer_drop=0.0)
    features, lengths = random_batch(2, utterances=2)
    with torch.no_grad():
        output, counts = encoder(features, lengths, FULL_CONTEXT)
        entry = encoder.subsampling(features, lengths)
        encoder.train()
        mixture, _ = encoder(features, lengths, FULL_CONTEXT, warmup=warmup)
    for row, count in enumerate(counts.tolist()):
        expected = share * output[row, :count] + (1 - share) * entry[row, :count]
        torch.testing.assert_close(mixture[row, :count], expected, rtol=0, atol=1e-5)


def test_layer_drop_happens_at_its_rate_and_only_in_training() -> None:
    encoder = small_encoder(layers=40, dim=4, attention_dim=4, heads=1, feedforward_dim=4, layer_drop=0.25)
    encoder.train()
    torch.manual_seed(0)
    shares = [share for _ in range(50) for share in encoder._shares(1.0)]
    assert set(shares) == {0.1, 1.0}
    assert shares.count(0.1) / len(shares) == pytest.approx(0.25, abs=0.04)
    assert set(encoder.eval()._shares(0.0)) == {1.0}


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("training", [True, False])
def test_autocast_stays_close_to_full_precision(training: bool, half: torch.dtype) -> None:
    encoder = small_encoder(dropout=0.0, layer_drop=0.0).train(training)
    features, lengths = random_batch(4)
    with torch.set_grad_enabled(training):
        full, _ = encoder(features, lengths, Chunk(4, 8))
        # Without oneDNN, whose half-precision kernels do not run on every processor that it chooses them for.
        with torch.backends.mkldnn.flags(enabled=False), torch.autocast("cpu", dtype=half):
            cast, _ = encoder(features, lengths, Chunk(4, 8))
            if training:
                cast.float().square().sum().backward()
    torch.testing.assert_close(cast.float(), full, rtol=0, atol=0.15 if half == torch.bfloat16 else 0.02)
    if training:
        assert all(parameter.grad.dtype == torch.float32 for parameter in encoder.parameters())
        assert all(parameter.grad.isfinite().all() for parameter in encoder.parameters())
