"""Invariant: a system on a pretrained front end, exported, gives torch's vectors, texts and times, however its audio is
cut, and remembers no more than its frames see.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from small_exports import RATE, exported, moonshine_system, tones

import transducer_gn
from transducer_gn.common.errors import UserError
from transducer_gn.config import RecognitionConfig
from transducer_gn.recognition.system import System
from transducer_gn.runtime.system import ExportedSystem

# Single precision, in another order, through six layers of numbers a hundred times as large as others.
TOLERANCE = 5e-5
CASES = {
    "nothing to the right": {"right": 0},
    "half a chunk to the right": {"right": 160},
    "more than a chunk to the right": {"right": 500, "left_chunks": 1},
    "all layers, all of the past": {"right": 80, "left_chunks": None, "layers": (2, 6)},
    "longer chunks, no past": {"chunk": 640, "left_chunks": 0},
}


@pytest.fixture(scope="module", params=CASES.values(), ids=CASES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[System, ExportedSystem]:
    """A system by torch and as it was exported."""
    folder = tmp_path_factory.mktemp("moonshine")
    system = moonshine_system(folder, **request.param)
    return system, transducer_gn.load_exported(exported(system, folder / "out"))


@pytest.mark.parametrize("samples", [400, 900, 5120, 10241, 17111, 70000])
def test_vectors_are_those_of_whole_utterances(pair: tuple[System, ExportedSystem], samples: int) -> None:
    system, runtime = pair
    audio = tones(samples, samples)
    wanted = system.front_end.compute(torch.from_numpy(audio)).numpy()
    assert len(wanted) == ((samples + 160) // 320 if samples >= 895 else 0)
    for pieces in ([samples], [1, 300, 5119, 9000], list(range(1000, samples, 1000))):
        online = runtime.stream()._online
        found = [online.accept(piece) for piece in np.split(audio, pieces)]
        np.testing.assert_allclose(np.concatenate([*found, online.finish()]), wanted, rtol=TOLERANCE, atol=TOLERANCE)


def test_vectors_come_as_soon_as_torchs(pair: tuple[System, ExportedSystem]) -> None:
    system, runtime = pair
    ours, theirs = runtime.stream()._online, system.front_end.open()
    for piece in np.split(tones(4, 40000), 50):
        theirs.accept(torch.from_numpy(piece))
        (wanted,) = system.front_end.advance([theirs])
        assert len(ours.accept(piece)) == len(wanted)


def test_texts_and_times_are_torchs(pair: tuple[System, ExportedSystem]) -> None:
    system, runtime = pair
    words = 0
    for samples in (900, 23456, 61234):
        audio = tones(samples, samples)
        ours, theirs = runtime.stream(), system.stream()
        for start in range(0, samples, 3000):
            piece = audio[start : start + 3000]
            assert ours.accept(piece) == theirs.accept(piece)
        wanted = theirs.finish()
        assert ours.finish() == wanted
        assert runtime.transcribe(audio, RecognitionConfig(beam=4)) == wanted
        words += len(wanted.words)
    assert words > 3


def test_the_memory_is_what_frames_see(pair: tuple[System, ExportedSystem]) -> None:
    runtime = pair[1]
    stream, sizes = runtime.stream(), []
    for piece in np.split(tones(3, 10 * RATE), 20):
        stream.accept(piece)
        sizes.append((stream._online._memory.shape[3], len(stream._online._samples)))
    chunk, right, left = (getattr(runtime.layout.front_end, name) for name in ("chunk", "right", "left_chunks"))
    remembered, waiting = np.array(sizes).T
    assert waiting.max() <= chunk + right + 895 + RATE // 2
    if left is None:
        assert remembered[-1] >= (10 * RATE - chunk - right - 895) // 384 - 1
    else:
        assert remembered.max() <= left * (chunk // 384 + 1)


def test_silence_after_the_end_is_refused(pair: tuple[System, ExportedSystem]) -> None:
    with pytest.raises(UserError, match="tail_padding: only filter banks have frames of silence"):
        pair[1].stream(RecognitionConfig(tail_padding=3))


def test_eight_bits_give_other_vectors_and_texts_all_the_same(tmp_path: Path) -> None:
    exported(moonshine_system(tmp_path), tmp_path / "out")
    audio = tones(7, 60000)
    exact, rounded = (transducer_gn.load_exported(tmp_path / "out", kind) for kind in ("float32", "int8"))
    vectors, others = (each.stream()._online.accept(audio) for each in (exact, rounded))
    assert 0 < np.abs(vectors - others).mean() < 0.1
    assert rounded.transcribe(audio).text
    assert (tmp_path / "out" / "front_end.int8.onnx").stat().st_size < (
        tmp_path / "out" / "front_end.onnx"
    ).stat().st_size
