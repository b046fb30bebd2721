"""Invariant: emission times equal the sum over every alignment written out, under the weights the search uses; and a
word's times of display are read off what was shown."""

import oracles
import pytest
import torch

from transducer_gn.common.errors import UserError
from transducer_gn.common.units import FRAME_SHIFT
from transducer_gn.config import RecognitionConfig
from transducer_gn.data.prepared import PreparedData
from transducer_gn.evaluation.decoding import evaluation_batches
from transducer_gn.evaluation.latency import (
    UtteranceTimes,
    blended_tokens,
    display_times,
    measure_times,
    reference_weights,
)
from transducer_gn.evaluation.latency_results import Latency, compare_latency, groups, mean_emission, not_measured
from transducer_gn.recognition.system import load_system
from transducer_gn.recognition.utterances import Shown, recognise, show


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
    torch.testing.assert_close(
        times[shortest].emitted, [FRAME_SHIFT * frame for frame in expected], rtol=1e-4, atol=1e-4
    )


def test_live_recogniser_ends_with_the_text_of_the_masked_pass_and_never_hears_more_than_there_is(system, batch):
    settings = RecognitionConfig(beam=4)
    histories = show(system, batch, settings)
    assert [history[-1].words for history in histories] == [u.hypothesis for u in recognise(system, batch, settings)]
    for history, duration in zip(histories, batch.durations.tolist(), strict=True):
        seconds = [moment.seconds for moment in history]
        assert seconds == sorted(seconds)
        assert seconds[-1] == pytest.approx(duration, abs=0.011)


def test_display_times_are_read_off_what_was_shown():
    history = [
        Shown(1, ["NAIL"]),
        Shown(2, ["MAIL", "ORDER"]),
        Shown(3, ["NAIL", "ORDER", "FOR"]),
        Shown(4, ["MAIL", "ORDER", "TEA"]),
        Shown(5, ["THE", "MAIL", "ORDER", "TEA"]),
    ]
    first, last = display_times("MAIL ORDER FOR TEA".split(), history)
    # FOR is wrong in the end; THE before it does not change MAIL.
    assert first == [2, 2, None, 4]
    assert last == [4, 2, None, 4]


def test_blended_tokens_are_those_of_whole_words():
    pieces = ["\u2581THE", "\u2581MA", "IL", "\u2581MAILS", "\u2581M", "AIL"]
    assert blended_tokens(pieces, ("MAIL", "NAIL")) == [False, True, True, False, True, True]
    assert blended_tokens(pieces, ()) == [False] * 6


def utterance(name, emitted, kind="ordinary", blended=None, shown=(), settled=()):
    tokens = [f"\u2581{n}" for n in range(len(emitted))]
    return UtteranceTimes(
        name, kind, tokens, list(emitted), blended or [False] * len(emitted), list(shown), list(settled)
    )


def latency(*utterances):
    return Latency("test", "epoch-1", {}, list(utterances))


def test_differences_are_means_over_tokens_that_both_have():
    first = latency(
        utterance("a", [0.1, 0.2, None], shown=[1.0], settled=[1.0]),
        utterance("b", [0.3], "ambiguous", [True], [2.0], [3.0]),
    )
    second = latency(
        utterance("a", [0.2, None, 0.5], shown=[0.5], settled=[None]),
        utterance("b", [0.1], "ambiguous", [True], [2.0], [2.0]),
    )
    found = compare_latency(first, second)
    changes = {name: difference.change.value for name, difference in found.emission.items()}
    assert changes == pytest.approx({"all": -50, "ordinary": 100, "ambiguous": -200, "ambiguous words": -200})
    assert [difference.change.value for difference in found.positions] == pytest.approx([-50])
    assert found.shown.change.value == pytest.approx(-250)
    assert found.settled.change.value == pytest.approx(-1000)
    assert mean_emission(first).value == pytest.approx(200)


def test_what_was_not_measured_is_left_out():
    found = compare_latency(latency(utterance("a", [0.1])), latency(utterance("a", [0.1])))
    assert found.shown is None and found.settled is None
    assert [name for name, _ in groups(latency(utterance("a", [0.1])))] == ["all", "ordinary words"]
    assert list(found.emission) == ["all"]


def test_other_utterances_or_tokens_are_refused():
    with pytest.raises(UserError, match="same utterances"):
        compare_latency(latency(utterance("a", [0.1])), latency(utterance("b", [0.1])))
    with pytest.raises(UserError, match="different token models"):
        compare_latency(latency(utterance("a", [0.1])), latency(utterance("a", [0.1, 0.2])))


def test_a_part_of_a_set_is_spread_evenly(toy):
    data = PreparedData(toy.folder)
    assert not_measured(data, "test", None) == not_measured(data, "test", 8) == frozenset()
    assert not_measured(data, "test", 2) == {f"test-{n}" for n in (1, 2, 3, 5, 6, 7)}
