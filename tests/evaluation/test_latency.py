"""Invariant: emission times equal the sum over every alignment written out, under the weights the search uses."""

from dataclasses import replace

import oracles
import pytest
import torch

from transducer_gn.common.framing import FILTER_BANKS
from transducer_gn.config import RecognitionConfig
from transducer_gn.data.prepared import PreparedData
from transducer_gn.evaluation.decoding import evaluation_batches
from transducer_gn.evaluation.latency import measure_times, reference_weights
from transducer_gn.recognition.system import load_system
from transducer_gn.recognition.utterances import recognise, show


@pytest.fixture(scope="module")
def system(runs):
    return load_system(runs / "global")


@pytest.fixture(scope="module")
def batch(system, toy):
    return next(evaluation_batches(system, PreparedData(toy.folder), "test", 4.0))


def literal_weights(system, batch, alpha, utterance):
    """Weights [U][T] and [U + 1][T] of one utterance alone, point by point."""
    model, length = system.model, int(batch.token_lengths[utterance])
    features = batch.features[utterance : utterance + 1, : int(batch.feature_lengths[utterance])]
    chunk = system.chunk(RecognitionConfig())
    frames, counts = model.encoder(features, torch.tensor([features.shape[1]]), chunk)
    tokens = batch.tokens[utterance, :length].tolist()
    state = model.predictor.initial_state(1)
    token_weights, blank_weights = [], []
    for previous, following in zip([0, *tokens], [*tokens, None], strict=True):
        output, state = model.predictor.step(torch.tensor([previous]), state)
        logits = model.joiner(model.joiner.project_encoder(frames[0]), model.joiner.project_predictor(output))
        weights = (logits - alpha * logits.logsumexp(-1, keepdim=True)).double()
        blank_weights.append(weights[:, 0].tolist())
        if following is not None:
            token_weights.append(weights[:, following].tolist())
    return token_weights, blank_weights, length, int(counts[0])


@pytest.mark.parametrize("alpha", [1.0, 0.5, 0.0])
def test_reference_weights_are_those_of_the_search(system, batch, alpha):
    chunk = system.chunk(RecognitionConfig())
    encoder_out, lengths = system.model.encoder(batch.features, batch.feature_lengths, chunk)
    token, blank = reference_weights(system.model, encoder_out, lengths, batch.tokens, batch.token_lengths, alpha)
    for i in range(len(batch)):
        tokens, blanks, count, frames = literal_weights(system, batch, alpha, i)
        torch.testing.assert_close(
            token[i, :count, :frames].double(), torch.tensor(tokens).double(), rtol=1e-3, atol=1e-3
        )
        torch.testing.assert_close(
            blank[i, : count + 1, :frames].double(), torch.tensor(blanks).double(), rtol=1e-3, atol=1e-3
        )


def test_emission_times_equal_enumeration(system, batch):
    times = measure_times(system, batch, system.chunk(RecognitionConfig()), None)
    shortest = min(range(len(batch)), key=lambda i: (int(batch.token_lengths[i]), int(batch.feature_lengths[i])))
    expected = oracles.emission_times(*literal_weights(system, batch, system.alpha, shortest))
    assert len(expected) > 1
    assert [(t.group, t.custom) for t in times] == list(zip(batch.groups, batch.custom, strict=True))
    torch.testing.assert_close(
        times[shortest].emitted, [FILTER_BANKS.frame_shift * frame for frame in expected], rtol=1e-4, atol=1e-4
    )


def test_times_include_what_must_be_heard_to_the_right(system, batch, monkeypatch):
    settings = RecognitionConfig(beam=4)

    def times():
        emitted = [t.emitted for t in measure_times(system, batch, system.chunk(settings), None)]
        return emitted, [[moment.seconds for moment in history] for history in show(system, batch, settings)]

    before = times()
    framing = replace(FILTER_BANKS, right=1600)
    monkeypatch.setattr(system.model.encoder, "framing", framing)
    emitted, shown = times()
    for early, late in zip(before[0], emitted, strict=True):
        assert late == pytest.approx([time + 0.1 for time in early])
    for early, late, duration in zip(before[1], shown, batch.durations.tolist(), strict=True):
        assert late == pytest.approx([min(time + 0.1, duration) for time in early], abs=0.011)


def test_live_recogniser_ends_with_the_text_of_the_masked_pass_and_never_hears_more_than_there_is(system, batch):
    settings = RecognitionConfig(beam=4)
    histories = show(system, batch, settings)
    assert [history[-1].words for history in histories] == [u.hypothesis for u in recognise(system, batch, settings)]
    for history, duration in zip(histories, batch.durations.tolist(), strict=True):
        seconds = [moment.seconds for moment in history]
        assert seconds == sorted(seconds)
        assert seconds[-1] == pytest.approx(duration, abs=0.011)
