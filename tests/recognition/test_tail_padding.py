"""Invariant: silence after an utterance is heard by all ways of recognising alike, as if it had been recorded."""

import math
from dataclasses import replace

import pytest
import soundfile
import torch
from small_systems import batch_of

from transducer_gn.common.errors import UserError
from transducer_gn.config import RecognitionConfig
from transducer_gn.model.chunk import FULL_CONTEXT
from transducer_gn.recognition.system import load_checkpoint_system
from transducer_gn.recognition.utterances import recognise, with_tail

SILENCE = math.log(1e-10)
TAIL = 24


@pytest.fixture(scope="module")
def system(checkpoint):
    return load_checkpoint_system(checkpoint, device=torch.device("cpu"))


@pytest.fixture(scope="module")
def utterances():
    generator = torch.Generator().manual_seed(0)
    return [3 * torch.randn(length, 80, generator=generator) - 10 for length in (130, 97)]


def words(system, batch, **settings):
    return [one.hypothesis for one in recognise(system, batch, RecognitionConfig(beam=4, **settings))]


@pytest.mark.parametrize("streaming", ["simulated", "chunks"])
def test_silence_that_is_added_is_as_silence_that_was_there(streaming, system, utterances):
    silent = [torch.cat([features, torch.full((TAIL, 80), SILENCE)]) for features in utterances]
    expected = words(system, batch_of(silent), streaming=streaming)
    assert words(system, batch_of(utterances), streaming=streaming, tail_padding=TAIL) == expected
    assert expected != words(system, batch_of(utterances), streaming=streaming)


def test_the_systems_own_setting_holds_unless_another_is_given(system, utterances):
    streaming = replace(system.config.model.streaming, tail_padding=TAIL)
    own = replace(system, config=replace(system.config, model=replace(system.config.model, streaming=streaming)))
    batch = batch_of(utterances)
    assert words(own, batch) == words(system, batch, tail_padding=TAIL)
    assert words(own, batch, tail_padding=0) == words(system, batch)
    assert own.describe(RecognitionConfig()).endswith(f"-tail-{TAIL}") and "tail" not in system.describe(
        RecognitionConfig()
    )


def test_recordings_have_it_too(system, folder):
    settings = RecognitionConfig(beam=4, tail_padding=TAIL)
    samples, _ = soundfile.read(folder / "0.wav", dtype="float32")
    features = system.front_end.compute(torch.from_numpy(samples))
    whole = " ".join(words(system, batch_of([features]), tail_padding=TAIL)[0])
    assert system.transcribe(folder / "0.wav", settings).text == whole
    lookahead = replace(settings, streaming="lookahead")
    assert system.chunk(lookahead) == FULL_CONTEXT
    whole = " ".join(words(system, batch_of([features]), tail_padding=TAIL, streaming="lookahead")[0])
    assert system.transcribe(folder / "0.wav", lookahead).text == whole


def test_frames_follow_each_utterance_where_it_ends(utterances):
    batch = batch_of(utterances)
    padded = with_tail(batch, torch.full((TAIL, 80), SILENCE))
    for row, features in enumerate(utterances):
        length = len(features)
        assert padded.feature_lengths[row] == length + TAIL
        assert torch.equal(padded.features[row, :length], features)
        assert (padded.features[row, length : length + TAIL] == torch.tensor(SILENCE)).all()
    assert with_tail(batch, torch.zeros(0, 80)) is batch


def test_other_front_ends_have_no_frames_of_silence(moonshine_checkpoint):
    system = load_checkpoint_system(moonshine_checkpoint, device=torch.device("cpu"))
    with pytest.raises(UserError, match="--tail-padding: only filter banks"):
        system.tail(RecognitionConfig(tail_padding=1))
    assert len(system.tail(RecognitionConfig())) == 0
