"""Invariant: an exported system gives the text, the words and their times that torch gives, greedy and beam, recording
and stream, and says one sentence where it cannot.

The weights are random, and hypotheses close to each other: what differs shows at once.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from small_exports import RATE, exported, small_system, tones

import transducer_gn
from transducer_gn.common.errors import UserError
from transducer_gn.config import EVERYDAY, RecognitionConfig
from transducer_gn.data.features import fbank
from transducer_gn.recognition.system import System
from transducer_gn.runtime.search import KEPT_PER_HYPOTHESIS
from transducer_gn.runtime.system import ExportedSystem
from transducer_gn.search.greedy import greedy_search

SAMPLES = (400, 1119, 1200, 10240, 23456, 61234)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> System:
    return small_system(tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="module")
def runtime(system: System, tmp_path_factory: pytest.TempPathFactory) -> ExportedSystem:
    return transducer_gn.load_exported(exported(system, tmp_path_factory.mktemp("exported")))


@pytest.mark.parametrize("beam", [1, 4, 8])
@pytest.mark.parametrize("samples", SAMPLES)
def test_beam_search_gives_torchs_text_and_times(
    system: System, runtime: ExportedSystem, samples: int, beam: int
) -> None:
    settings = RecognitionConfig(beam=beam)
    audio = tones(samples, samples)
    wanted = system.transcribe(audio, settings)
    assert runtime.transcribe(audio, settings) == wanted
    assert samples < 20000 or len(wanted.words) > 3


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_other_interpolations(tmp_path: Path, alpha: float) -> None:
    system = small_system(tmp_path, alpha)
    runtime = transducer_gn.load_exported(exported(system, tmp_path / "out", chunk=3, left_context=6))
    audio = tones(7, 60000)
    wanted = system.transcribe(audio, RecognitionConfig(beam=4, chunk=3, left_context=6))
    assert runtime.transcribe(audio) == wanted and len(wanted.words) > 3


def test_silence_after_the_end_is_that_of_the_system_or_what_is_asked_for(tmp_path: Path) -> None:
    system = small_system(tmp_path)
    streaming = replace(system.config.model.streaming, tail_padding=30)
    padded = replace(system, config=replace(system.config, model=replace(system.config.model, streaming=streaming)))
    audio = tones(6, 30000)
    with_tail, without = padded.transcribe(audio), system.transcribe(audio)
    assert with_tail != without
    runtime = transducer_gn.load_exported(exported(padded, tmp_path / "out"))
    assert runtime.transcribe(audio) == with_tail
    assert runtime.transcribe(audio, RecognitionConfig(beam=4, tail_padding=0)) == without


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("samples", SAMPLES)
def test_greedy_search_gives_torchs_text(system: System, runtime: ExportedSystem, samples: int, most: int) -> None:
    settings = RecognitionConfig(method="greedy", max_tokens_per_frame=most)
    audio = tones(samples, samples)
    features = torch.as_tensor(fbank().extract(audio[None], RATE))
    with torch.no_grad():
        encoded = system.model.encoder(features[None], torch.tensor([len(features)]), system.chunk(settings))
    found = greedy_search(system.model, *encoded, max_tokens_per_frame=most)
    transcript = runtime.transcribe(audio, settings)
    assert transcript.text == system.tokenizer.decode(found.tokens[0][0])
    assert not transcript.words or transcript.words[0].start == pytest.approx(0.04 * found.times[0][0][0])


def test_partial_texts_and_revisions_are_torchs(system: System, runtime: ExportedSystem) -> None:
    audio = tones(3, 90000)
    ours, theirs = runtime.stream(), system.stream()
    for start in range(0, len(audio), 2500):
        piece = audio[start : start + 2500]
        assert ours.accept(piece) == theirs.accept(piece)
    assert ours.finish() == theirs.finish()
    assert ours.revisions == theirs.revisions and ours.revisions.changes > 0
    assert ours.seconds == theirs.seconds


def test_a_greedy_stream_takes_nothing_back(runtime: ExportedSystem) -> None:
    stream, shown = runtime.stream(RecognitionConfig(method="greedy")), ""
    for piece in np.split(tones(5, 80000), 20):
        partial = stream.accept(piece)
        assert partial.text == partial.stable and partial.text.startswith(shown)
        shown = partial.text
    assert shown and stream.finish().text.startswith(shown) and stream.revisions.changes == 0


def test_memory_does_not_grow_with_the_stream(runtime: ExportedSystem) -> None:
    stream, sizes, kept = runtime.stream(), [], []
    for piece in np.split(tones(3, 40 * RATE), 80):
        stream.accept(piece)
        sizes.append(stream._text.beam.size())
        kept.append(len(stream._search._prefixes._read))
    # How much is unsettled varies; that it does not pile up is seen in the middle of the values.
    assert np.median(sizes[40:]) <= 2 * np.median(sizes[:40])
    assert max(kept) <= 1.5 * KEPT_PER_HYPOTHESIS * EVERYDAY.beam


def test_eight_bits_recognise_too_and_give_other_weights(runtime: ExportedSystem, tmp_path: Path) -> None:
    small = transducer_gn.load_exported(exported(small_system(tmp_path), tmp_path / "out"), "int8")
    audio = tones(9, 60000)
    assert len(small.transcribe(audio).words) > 3
    prefix = runtime.networks.initial_prefix()[0]
    frame = np.linspace(-1, 1, prefix.shape[1], dtype=np.float32)
    exact, rounded = (each.networks.weigh(frame, prefix)[0] for each in (runtime, small))
    assert 0 < np.abs(exact - rounded).max() < 0.2


def test_files_are_read_and_bad_audio_is_refused(system: System, runtime: ExportedSystem, tmp_path: Path) -> None:
    audio = tones(11, 30000)
    soundfile.write(tmp_path / "a.wav", audio, RATE)
    assert runtime.transcribe(tmp_path / "a.wav") == system.transcribe(tmp_path / "a.wav")
    for samples, rate, sentence in [
        (audio, 8000, "8000 samples per second"),
        (audio[None], RATE, "must be mono"),
        (np.full(9, np.nan, dtype=np.float32), RATE, "NaN"),
        (np.zeros(0, dtype=np.float32), RATE, "without any audio"),
    ]:
        with pytest.raises(UserError, match=sentence):
            runtime.transcribe(samples, sampling_rate=rate)
    stream = runtime.stream()
    stream.accept(audio)
    stream.finish()
    with pytest.raises(UserError, match="has ended"):
        stream.accept(audio)


def test_a_model_gone_wrong_is_named(runtime: ExportedSystem) -> None:
    for method in ("beam", "greedy"):
        stream = runtime.stream(RecognitionConfig(method=method))
        stream.accept(tones(1, 9000))
        stream._state.memory[:] = np.nan
        with pytest.raises(UserError, match="NaN or infinitely large"):
            stream.accept(tones(1, 16000))


def test_other_settings_than_the_export_has_are_refused(runtime: ExportedSystem, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="chunk: the system was exported with 4, not 8"):
        runtime.stream(RecognitionConfig(chunk=8))
    with pytest.raises(UserError, match="chunk by chunk"):
        runtime.transcribe(tones(1, 999), RecognitionConfig(streaming="lookahead"))
    with pytest.raises(UserError, match=r"holds no exported system \(no metadata.json\)"):
        transducer_gn.load_exported(tmp_path)
    (tmp_path / "metadata.json").write_text('{"format": 99}')
    with pytest.raises(UserError, match="format 99"):
        transducer_gn.load_exported(tmp_path)
    (tmp_path / "metadata.json").write_text('{"format": 1}')
    with pytest.raises(UserError, match="does not describe an exported system"):
        transducer_gn.load_exported(tmp_path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"chunk": 4000}, r"does not fit its graphs \(features\)"),
        ({"vocab_size": 99}, r"does not fit its graphs \(weights\)"),
        ({"predictor_state": []}, r"does not fit its graphs \(predictor_state\)"),
        ({"blank": 2**32 - 1}, "its blank must be 0"),
        ({"tail_padding": 2**32 - 1}, "tail_padding: must be from 0 to 6000"),
    ],
)
def test_a_description_of_another_system_is_refused(
    system: System, tmp_path: Path, change: dict[str, int], sentence: str
) -> None:
    path = exported(system, tmp_path) / "metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=sentence):
        transducer_gn.load_exported(path.parent).transcribe(tones(1, 999))


def test_missing_and_broken_graphs_are_named(system: System, tmp_path: Path) -> None:
    folder = exported(system, tmp_path)
    with pytest.raises(UserError, match="precision int4"):
        transducer_gn.load_exported(folder, "int4")
    (folder / "joiner.onnx").write_bytes(b"nothing")
    with pytest.raises(UserError, match="joiner.onnx: onnxruntime cannot load this file"):
        transducer_gn.load_exported(folder)
    (folder / "joiner.int8.onnx").unlink()
    with pytest.raises(UserError, match="joiner.int8.onnx: there is no such file"):
        transducer_gn.load_exported(folder, "int8")
