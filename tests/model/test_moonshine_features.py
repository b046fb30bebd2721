"""Invariant: the front end's vectors have mean 0 and deviation 1 where they were fitted, streams give those of whole
utterances, and whatever changes them changes the fingerprint.
"""

from dataclasses import replace

import pytest
import torch
from small_moonshine import SMALL, audio, batch, small_moonshine

from transducer_gn.config.front_end import FrontEndConfig
from transducer_gn.model.front_end import FrontEnd, OnlineFeatures
from transducer_gn.model.moonshine_features import LEAST_DEVIATION, MoonshineFeatures, Standardisation, VectorSums

CONFIG = FrontEndConfig("moonshine-tiny", layers=(1, 3), chunk=160, right=60, left_chunks=2)


def fitted(config: FrontEndConfig = CONFIG) -> MoonshineFeatures:
    front_end = MoonshineFeatures(small_moonshine(), config)
    front_end.standardisation.fit(front_end.sums(samples) for samples in audio(9000, 5000, seed=1))
    return front_end


def advanced(front_end: FrontEnd, stream: OnlineFeatures, samples: torch.Tensor | None) -> torch.Tensor:
    """The new vectors after more samples, None for the end."""
    stream.finish() if samples is None else stream.accept(samples)
    was_ready = stream.is_ready
    (vectors,) = front_end.advance([stream])
    assert was_ready or len(vectors) == 0
    assert not stream.is_ready
    return vectors


def test_standardisation_is_taken_from_all_vectors() -> None:
    front_end = fitted()
    vectors = torch.cat([front_end.compute(samples) for samples in audio(9000, 5000, seed=1)])
    torch.testing.assert_close(vectors.mean(0), torch.zeros(2 * SMALL.dim), rtol=0, atol=1e-4)
    torch.testing.assert_close(vectors.std(0, correction=0), torch.ones(2 * SMALL.dim), rtol=0, atol=1e-3)


def test_numbers_that_do_not_vary_stay_small() -> None:
    standardisation = Standardisation(2)
    standardisation.fit([VectorSums.of(torch.tensor([[3.0, 1.0]])), VectorSums.of(torch.tensor([[3.0, 2.0]]))])
    torch.testing.assert_close(standardisation.deviation, torch.tensor([LEAST_DEVIATION, 0.5]))
    with pytest.raises(ValueError, match="no vectors"):
        standardisation.fit([VectorSums.of(torch.zeros(0, 2))])


def test_streams_batches_and_whole_utterances_agree() -> None:
    front_end: FrontEnd = fitted()
    utterances = audio(9000, 2561, 700, seed=2)
    with torch.no_grad():
        together, counts = front_end(*batch(utterances))
    for samples, row, count in zip(utterances, together, counts.tolist(), strict=True):
        stream = front_end.open()
        streamed = torch.cat([advanced(front_end, stream, piece) for piece in (*samples.split(1000), None)])
        whole = front_end.compute(samples)
        assert len(whole) == count == (front_end.framing.feature_frames(len(samples)) if len(samples) > 894 else 0)
        torch.testing.assert_close(streamed, whole, rtol=0, atol=1e-4)
        torch.testing.assert_close(row[:count], whole, rtol=0, atol=1e-4)
        assert torch.all(row[count:] == 0)


def test_streams_are_known_when_the_framing_says_so() -> None:
    front_end = fitted(replace(CONFIG, stack=2))
    stream, (samples,) = front_end.open(), audio(8000)
    framing = front_end.framing
    due = round(16000 * framing.seconds_heard(replace(CONFIG, stack=2).chunk_frames))
    assert due == 16 * (160 + 60)
    assert len(advanced(front_end, stream, samples[: due - 1])) == 0
    assert len(advanced(front_end, stream, samples[due - 1 : due])) == framing.features_seen(4)


def test_streams_of_a_batch_give_what_they_give_alone() -> None:
    front_end = fitted()
    utterances = audio(9000, 2561, 6000, seed=3)
    streams = [front_end.open() for _ in utterances]
    for stream, samples in zip(streams, utterances, strict=True):
        stream.accept(samples)
        stream.finish()
    for samples, vectors in zip(utterances, front_end.advance(streams), strict=True):
        torch.testing.assert_close(vectors, front_end.compute(samples), rtol=0, atol=1e-4)
    assert front_end.advance([]) == []


@pytest.mark.parametrize("freeze", [True, False])
def test_gradients_reach_the_encoder_unless_it_is_frozen(freeze: bool) -> None:
    front_end = fitted(replace(CONFIG, freeze=freeze))
    vectors, _ = front_end(*batch(audio(4000)))
    assert vectors.requires_grad == (not freeze)
    if not freeze:
        vectors.square().sum().backward()
        encoder = front_end.encoder
        assert all(weight.grad.abs().sum() > 0 for weight in encoder.layers[: max(front_end.layers)].parameters())
        assert encoder.wave.weight.grad is None and encoder.third.weight.grad is None


def test_whatever_changes_vectors_changes_the_fingerprint() -> None:
    """Before anything is fitted, so that settings cannot show through the standardisation that they lead to."""

    def fingerprint(seed: int = 0, **changes: object) -> dict[str, object]:
        return MoonshineFeatures(small_moonshine(seed), replace(CONFIG, **changes)).fingerprint()

    base = fingerprint()
    # Layers of equal number, so that the standardisation is of equal size.
    others = [fingerprint(layers=(2, 3)), fingerprint(chunk=320), fingerprint(right=0), fingerprint(left_chunks=None)]
    others += [fingerprint(seed=1), fitted().fingerprint()]
    assert all(other != base for other in others)
    assert fingerprint() == fingerprint(stack=2) == fingerprint(freeze=False) == base
