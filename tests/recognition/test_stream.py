"""Streams give the text of a whole-utterance search under the same chunk mask, however audio is cut and batched.

Audio is synthetic; the encoder has random weights, whose search has many close competitors: a beam that was carried
over wrongly, or a feature that differs, shows at once.
"""

import math
import random
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from transducer_gn.common.errors import UserError
from transducer_gn.common.memory import held_bytes
from transducer_gn.config import EncoderConfig, JoinerConfig, ModelConfig, PredictorConfig
from transducer_gn.data.features import fbank
from transducer_gn.model.chunk import Chunk
from transducer_gn.model.encoder_stream import StreamingEncoder
from transducer_gn.model.transducer import build_model
from transducer_gn.recognition.front_end import FilterBanks
from transducer_gn.recognition.stream import LiveStream, StreamingRecogniser
from transducer_gn.search.beam import BeamSearch, beam_search

VOCABULARY = 20
CHUNK = Chunk(4, 8)
ALPHA = 0.3
RATE = 16000


class LetterTokenizer:
    """Ids 1 to 9 start a word with a letter, the others continue one."""

    pieces = ["<blk>"] + ["\u2581" + chr(96 + i) for i in range(1, 10)] + [chr(96 + i) for i in range(10, VOCABULARY)]

    def decode(self, ids):
        return "".join(self.pieces[i] for i in ids).replace("\u2581", " ").strip()


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    encoder = EncoderConfig(dim=16, attention_dim=16, heads=2, feedforward_dim=24, layers=2, kernel=7)
    predictor = PredictorConfig(embedding_dim=8, dim=12, layers=1)
    config = ModelConfig(vocab_size=VOCABULARY, encoder=encoder, predictor=predictor, joiner=JoinerConfig(dim=16))
    model = build_model(config).eval()
    with torch.no_grad():
        model.joiner.output.weight.log_scale += 1
        model.joiner.output.bias.value[0] += 2.5
    return model


@pytest.fixture
def recogniser(model):
    encoder, search = StreamingEncoder(model.encoder, CHUNK), BeamSearch(model, 4, ALPHA)
    return StreamingRecogniser(FilterBanks(), encoder, search, LetterTokenizer())


def synthetic_audio(seed: int, samples: int) -> torch.Tensor:
    """Tones that change a few times a second, and noise."""
    generator = torch.Generator().manual_seed(seed)
    pitches = 100 * 2 ** (4 * torch.rand(samples // 3000 + 1, generator=generator))
    phase = (pitches.repeat_interleave(3000)[:samples] / RATE).cumsum(0)
    return 0.3 * torch.sin(2 * math.pi * phase) + 0.02 * torch.randn(samples, generator=generator)


def whole_search(model, audio: torch.Tensor):
    """The best hypothesis of the whole utterance: tokens, and frames at which they were emitted."""
    features = torch.as_tensor(fbank().extract(audio[None], RATE))
    with torch.no_grad():
        encoder_out, lengths = model.encoder(features[None], torch.tensor([len(features)]), CHUNK)
    found = beam_search(model, encoder_out, lengths, 4, 4, ALPHA)
    return SimpleNamespace(tokens=found.tokens[0][0], times=found.times[0][0])


def cut(audio: torch.Tensor, seed: int) -> list[torch.Tensor]:
    """Pieces of sizes from none to more than a second."""
    sizes = random.Random(seed)
    pieces = []
    while len(audio):
        size = sizes.choice([0, 1, 159, 160, 1000, 5000, 20000])
        pieces.append(audio[:size])
        audio = audio[size:]
    return pieces


@pytest.mark.parametrize("samples", [400, 1119, 1200, 10240, 16000, 47123])
def test_text_and_times_are_those_of_the_whole_search(model, recogniser, samples):
    audio = synthetic_audio(samples, samples)
    wanted = whole_search(model, audio)
    for seed in range(2):
        stream = LiveStream(recogniser)
        for piece in cut(audio, seed):
            stream.accept(piece)
        final = stream.finish()
        assert final.text == LetterTokenizer().decode(wanted.tokens)
        numbered = enumerate(zip(wanted.tokens, wanted.times, strict=True))
        starts = [time for number, (token, time) in numbered if token <= 9 or number == 0]
        assert [word.start for word in final.words] == pytest.approx([0.04 * t for t in starts])
    # An utterance of some length is no test if nothing is said in it.
    assert samples < 16000 or len(wanted.tokens) > 5


def test_a_stream_goes_on_after_each_so_many_seconds(recogniser):
    stream, steps = recogniser.open(), []
    for number, piece in enumerate(synthetic_audio(0, RATE).split(RATE // 100), 1):
        stream.add(piece)
        if stream.is_ready:
            recogniser.step([stream])
            steps.append(number / 100)
    assert len(steps) > 3
    assert [after - before for before, after in pairwise(steps)] == pytest.approx(
        [recogniser.chunk_seconds] * (len(steps) - 1)
    )


def test_a_stream_too_short_for_a_frame_has_nothing_to_wait_for(recogniser):
    stream = recogniser.open()
    stream.add(synthetic_audio(0, 300))
    stream.end()
    assert stream.finished and not stream.is_ready and stream.partial().text == ""


def test_streams_that_share_steps_give_what_they_give_alone(model, recogniser):
    audios = [synthetic_audio(seed, 8000 + 7000 * seed) for seed in range(5)]
    waiting = [cut(audio, seed) for seed, audio in enumerate(audios)]
    streams = [recogniser.open() for _ in audios]
    while any(not stream.finished for stream in streams):
        for stream, pieces in zip(streams, waiting, strict=True):
            if pieces:
                stream.add(pieces.pop(0))
                if not pieces:
                    stream.end()
        recogniser.advance(streams)
    for audio, stream in zip(audios, streams, strict=True):
        assert stream.partial().text == LetterTokenizer().decode(whole_search(model, audio).tokens)


def test_settled_text_never_changes_and_no_hypothesis_disputes_it(recogniser):
    stream = LiveStream(recogniser)
    settled = ""
    for piece in synthetic_audio(1, 80000).split(2500):
        partial = stream.accept(piece)
        assert partial.stable.startswith(settled)
        assert partial.text.startswith(partial.stable)
        settled = partial.stable
    assert len(settled) > 5
    final = stream.finish()
    assert final.text.startswith(settled) and final.stable == final.text


def test_revisions_count_what_was_taken_back(recogniser):
    stream = LiveStream(recogniser)
    shown = [stream.accept(piece).text for piece in synthetic_audio(2, 80000).split(2560)]
    shown.append(stream.finish().text)
    taken_back = sum(not after.startswith(before) for before, after in pairwise(shown))
    assert taken_back > 0
    revisions = stream.revisions
    # A token within a word may be replaced without a visible change of what precedes it, never the other way round.
    assert revisions.changes >= taken_back
    assert revisions.tokens_withdrawn >= revisions.changes
    assert 0 < revisions.most_seconds <= 5.0
    assert revisions.updates >= revisions.changes


def test_memory_does_not_grow_with_the_stream(recogniser):
    stream = LiveStream(recogniser)
    sizes, prefixes = [], []
    for piece in synthetic_audio(3, 40 * RATE).split(10240):
        stream.accept(piece)
        sizes.append(held_bytes(stream))
        prefixes.append(stream._stream.text.beam.size())
    assert max(sizes[30:]) <= 1.2 * max(sizes[5:20])
    assert max(prefixes[30:]) <= 1.2 * max(prefixes[5:20])


BAD_AUDIO = {
    "another rate": (torch.zeros(100), 8000, "8000 samples per second"),
    "stereo": (torch.zeros(100, 2), RATE, "must be mono"),
    "NaN": (torch.tensor([0.0, math.nan]), RATE, "NaN or infinite"),
    "infinite": (np.array([0.0, np.inf], dtype=np.float32), RATE, "NaN or infinite"),
    "not scaled": (torch.tensor([0.0, 20000.0]), RATE, "reaches 20000"),
    "wide integers": (torch.zeros(100, dtype=torch.int32), RATE, "16-bit integers"),
}


@pytest.mark.parametrize("name", BAD_AUDIO)
def test_wrong_audio_is_refused_and_does_no_harm(model, recogniser, name):
    samples, rate, sentence = BAD_AUDIO[name]
    audio = synthetic_audio(4, 16000)
    stream = LiveStream(recogniser)
    stream.accept(audio[:9000])
    with pytest.raises(UserError, match=sentence):
        stream.accept(samples, rate)
    stream.accept(audio[9000:])
    assert stream.finish().text == LetterTokenizer().decode(whole_search(model, audio).tokens)


def test_sixteen_bit_integers_are_scaled(model, recogniser):
    integers = (synthetic_audio(5, 16000) * 32768).round().to(torch.int16)
    stream = LiveStream(recogniser)
    stream.accept(integers.numpy())
    assert stream.finish().text == LetterTokenizer().decode(whole_search(model, integers.float() / 32768).tokens)


def test_a_stream_without_audio_or_after_its_end_is_refused(recogniser):
    stream = LiveStream(recogniser)
    stream.accept(torch.zeros(0))
    with pytest.raises(UserError, match="without any audio"):
        stream.finish()
    stream.accept(torch.zeros(1600))
    stream.finish()
    with pytest.raises(UserError, match="has ended"):
        stream.accept(torch.zeros(1600))


def test_a_stream_that_fails_does_not_disturb_the_others(model, recogniser):
    audios = [synthetic_audio(seed, 32000) for seed in range(3)]
    streams = [recogniser.open() for _ in audios]
    for stream, audio in zip(streams, audios, strict=True):
        stream.add(audio[:16000])
    recogniser.advance(streams)
    # Nothing that a stream is given breaks it, so break its memory.
    streams[1].encoder.caches[0].memory.fill_(math.nan)
    for stream, audio in zip(streams, audios, strict=True):
        stream.add(audio[16000:])
        stream.end()
    recogniser.advance(streams)
    with pytest.raises(UserError, match="NaN"):
        streams[1].partial()
    assert all(stream.finished for stream in streams)
    # Nothing more is computed for it, although it has audio left.
    assert streams[1].encoder.is_ready and not streams[1].is_ready
    for number in (0, 2):
        assert streams[number].partial().text == LetterTokenizer().decode(whole_search(model, audios[number]).tokens)
