"""streaming_decode.py as a user runs it: files, folders and raw standard input; a bad input costs only itself."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from transducer_gn.common.errors import UserError
from transducer_gn.data.features import fbank
from transducer_gn.model.chunk import evaluation_chunk
from transducer_gn.recognition.samples import file_pieces
from transducer_gn.recognition.system import load_checkpoint_system
from transducer_gn.search.beam import beam_search

ROOT = Path(__file__).parents[2]
RATE = 16000


def run(checkpoint: Path, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess:
    """The script's exit code and output."""
    script = ROOT / "egs" / "librispeech" / "ASR" / "streaming_decode.py"
    command = [sys.executable, str(script), "--checkpoint", str(checkpoint), *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, input=stdin, capture_output=True, env=environment, check=False)


def whole_text(checkpoint: Path, path: Path) -> str:
    """The text of a whole-utterance search with the same settings."""
    system = load_checkpoint_system(checkpoint)
    audio, _ = soundfile.read(path, dtype="float32")
    features = torch.as_tensor(fbank().extract(audio[None], RATE))
    chunk = evaluation_chunk(system.config.model.streaming)
    encoder_out, lengths = system.model.encoder(features[None], torch.tensor([len(features)]), chunk)
    found = beam_search(system.model, encoder_out, lengths, 4, 1, system.alpha)
    return system.tokenizer.decode(found.tokens[0][0])


def test_a_folder_gives_json_lines_and_the_text_of_the_whole_search(checkpoint, folder):
    result = run(checkpoint, "--json", str(folder))
    assert result.returncode == 0, result.stderr
    lines = [json.loads(line) for line in result.stdout.decode().splitlines()]
    for number in range(2):
        name = str(folder / f"{number}.wav")
        own = [line for line in lines if line.get("name") == name]
        assert [line["final"] for line in own] == [False] * (len(own) - 1) + [True]
        assert len(own) > 2
        assert own[-1]["text"] == whole_text(checkpoint, folder / f"{number}.wav") != ""
        assert [word["text"] for word in own[-1]["words"]] == own[-1]["text"].split()
        assert own[-1]["revisions"]["updates"] > 0
    assert lines[-1]["totals"]["most_concurrent"] == 2
    assert lines[-1]["totals"]["audio_seconds"] == pytest.approx(3.4)


def test_standard_input_gives_what_the_file_gives(checkpoint, folder):
    audio, _ = soundfile.read(folder / "1.wav", dtype="int16")
    result = run(checkpoint, "-", stdin=audio.astype("<i2").tobytes())
    assert result.returncode == 0, result.stderr
    assert result.stdout.decode() == f"standard input: {whole_text(checkpoint, folder / '1.wav')}\n"
    assert b"real-time factor" in result.stderr


def test_bad_inputs_are_named_and_the_others_recognised(checkpoint, folder, tmp_path):
    soundfile.write(tmp_path / "stereo.wav", np.zeros((4000, 2)), RATE)
    soundfile.write(tmp_path / "slow.wav", np.zeros(4000), 8000)
    soundfile.write(tmp_path / "empty.wav", np.zeros(0), RATE)
    soundfile.write(tmp_path / "nan.wav", np.array([0.0, math.nan] * 2000), RATE, subtype="FLOAT")
    (tmp_path / "text.wav").write_text("this is no audio")
    names = ["stereo.wav", "slow.wav", "empty.wav", "nan.wav", "text.wav", "missing.wav"]
    good = folder / "0.wav"
    result = run(checkpoint, *(str(tmp_path / name) for name in names), str(good))
    output = result.stdout.decode()
    sentences = ["2 channels", "8000 samples per second", "no audio", "NaN", "cannot be read as audio", "no such file"]
    for name, sentence in zip(names, sentences, strict=True):
        line = next(line for line in output.splitlines() if line.startswith(f"{tmp_path / name}: "))
        assert sentence in line
    assert f"{good}: {whole_text(checkpoint, good)}\n" in output
    assert result.returncode == 2
    assert "6 of 7 inputs could not be recognised" in result.stderr.decode()


def test_a_header_that_tells_of_too_few_frames_is_named(tmp_path):
    path = tmp_path / "a.mp3"
    soundfile.write(path, 0.1 * np.sin(np.arange(800) / 5), RATE)
    content = bytearray(path.read_bytes())
    place = content.index(b"Xing") + 8
    content[place : place + 4] = (2).to_bytes(4, "big")
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"a.mp3: the file contains no audio"):
        list(file_pieces(path, RATE, 100))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-", "x.wav"], "cannot be combined"),
        (["--beam", "0", "x.wav"], "--beam must be above 0"),
        (["--alpha", "2", "x.wav"], "--alpha must be between 0 and 1"),
        (["--left-context", "3", "x.wav"], "no multiple of the chunk"),
        (["."], "contains no audio"),
    ],
)
def test_wrong_flags_are_refused_with_a_sentence(checkpoint, arguments, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(checkpoint, *arguments)
    assert result.returncode == 2
    assert sentence in result.stderr.decode()
    assert len(result.stderr.decode().splitlines()) == 1


def test_a_missing_checkpoint_is_refused_with_a_sentence(tmp_path):
    result = run(tmp_path / "none.pt", "x.wav")
    assert result.returncode == 2
    assert "there is no checkpoint" in result.stderr.decode()


def test_input_that_ends_within_a_sample_is_refused(checkpoint):
    result = run(checkpoint, "-", stdin=b"\0" * 32001)
    assert result.returncode == 2
    assert "middle of a sample" in result.stdout.decode()
