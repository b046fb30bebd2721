"""Invariant: a system on a pretrained front end recognises from its checkpoint alone, and says the same chunk by chunk,
however the audio is cut and whichever streams share a step, as under masks over whole utterances.
"""

from pathlib import Path

import pytest
import torch
from small_moonshine import audio
from torch.nn.utils.rnn import pad_sequence

import transducer_gn
from transducer_gn.common.errors import UserError
from transducer_gn.config import RecognitionConfig
from transducer_gn.recognition.system import System
from transducer_gn.search.beam import beam_search

SETTINGS = RecognitionConfig(beam=4)


@pytest.fixture
def system(moonshine_checkpoint: Path) -> System:
    return transducer_gn.load(moonshine_checkpoint)


def masked_texts(system: System, utterances: list[torch.Tensor]) -> list[str]:
    """Texts of one pass over all utterances at once: front end and encoder under masks, then a search over frames."""
    lengths = torch.tensor([len(samples) for samples in utterances])
    with torch.no_grad():
        vectors, counts = system.model.front_end(pad_sequence(utterances, batch_first=True), lengths)
        frames, frame_lengths = system.model.encoder(vectors, counts, system.chunk(SETTINGS))
        found = beam_search(
            system.model, frames, frame_lengths, SETTINGS.beam, 1, system.alpha, system.tokens_per_frame(SETTINGS)
        )
    return [system.tokenizer.decode(hypotheses[0]) for hypotheses in found.tokens]


def test_chunk_by_chunk_is_what_masks_over_whole_utterances_give(system: System) -> None:
    utterances = audio(30000, 17111, 5120, 41000, seed=4)
    expected = masked_texts(system, utterances)
    assert len(set(expected)) > 2
    recogniser = system.recogniser(SETTINGS)
    streams = [recogniser.open() for _ in utterances]
    # Pieces of other sizes for each, the last ones alone.
    pieces = [list(samples.split(size)) for samples, size in zip(utterances, (700, 4000, 5120, 9999), strict=True)]
    for turn in range(max(map(len, pieces)) + 1):
        for stream, own in zip(streams, pieces, strict=True):
            if turn < len(own):
                stream.add(own[turn])
            elif turn == len(own):
                stream.end()
        recogniser.advance(streams)
    assert all(stream.finished for stream in streams)
    assert [stream.partial().text for stream in streams] == expected
    assert [system.transcribe(samples, SETTINGS).text for samples in utterances] == expected


def test_words_are_timed_by_when_they_are_known(system: System) -> None:
    framing, (samples,) = system.model.encoder.framing, audio(30000, seed=4)
    words = system.transcribe(samples, SETTINGS).words
    frames = [(word.start - framing.right_seconds) / framing.frame_shift for word in words]
    assert words and frames == pytest.approx([round(frame) for frame in frames])
    assert min(word.start for word in words) >= framing.right_seconds
    stream, shown = system.stream(SETTINGS), None
    for number, piece in enumerate(samples.split(160), start=1):
        if shown is None and stream.accept(piece).text:
            shown = number / 100
    # Nothing is shown before its chunk and what is heard after it are there.
    assert shown is not None
    assert shown >= framing.seconds_heard(8) - 1e-9
    assert (shown - framing.seconds_heard(8)) / (8 * framing.frame_shift) == pytest.approx(
        round((shown - framing.seconds_heard(8)) / (8 * framing.frame_shift)), abs=0.02
    )


def test_the_memory_of_a_stream_is_bounded(system: System) -> None:
    recogniser = system.recogniser(SETTINGS)
    stream, (samples,), sizes = recogniser.open(), audio(160000, seed=5), []
    for piece in samples.split(16000):
        stream.add(piece)
        recogniser.advance([stream])
        kept = stream.online.stream
        sizes.append(sum(x.numel() for x in (kept.samples, kept.waves, kept.projected, *kept.memory)))
    # Chunks of 320 ms and seconds do not meet, and chunks have a frame more or less.
    assert max(sizes[5:]) <= 1.3 * max(sizes[:5])


def test_chunks_that_do_not_fit_the_front_end_are_refused(system: System) -> None:
    with pytest.raises(UserError, match="--chunk: must be a multiple of the 4 frames .*chunk of 320 ms.*, not 6"):
        system.stream(RecognitionConfig(beam=4, chunk=6))
    with pytest.raises(UserError, match="8000 samples per second, but the model needs 16000"):
        system.transcribe(torch.zeros(9000), sampling_rate=8000)


def test_audio_too_short_for_a_vector_is_no_words(system: System) -> None:
    assert system.transcribe(torch.zeros(500), SETTINGS).text == ""
