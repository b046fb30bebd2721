"""Invariant: `transducer_gn.load(...)` transcribes and streams with the text of the search, says one sentence where it
cannot, and needs nothing that only training, evaluation, reports and synthesis need.
"""

import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from small_systems import write_checkpoint

import transducer_gn
from transducer_gn.common.errors import UserError
from transducer_gn.common.units import SAMPLING_RATE as RATE
from transducer_gn.config import RecognitionConfig, SystemConfig
from transducer_gn.data.features import fbank
from transducer_gn.recognition.system import System, load_checkpoint_system
from transducer_gn.search.beam import beam_search

ROOT = Path(__file__).parents[2]


def searched(system: System, path: Path, settings: RecognitionConfig) -> tuple[str, list[float]]:
    """Text and times of tokens of a search over the whole recording."""
    audio, _ = soundfile.read(path, dtype="float32")
    features = torch.as_tensor(fbank().extract(audio[None], RATE))
    chunk = system.chunk(settings)
    with torch.no_grad():
        encoded = system.model.encoder(features[None], torch.tensor([len(features)]), chunk)
    found = beam_search(system.model, *encoded, settings.beam, 1, system.alpha, system.tokens_per_frame(settings))
    return system.tokenizer.decode(found.tokens[0][0]), [0.04 * frame for frame in found.times[0][0]]


@pytest.fixture(scope="module")
def system(checkpoint: Path) -> System:
    return transducer_gn.load(str(checkpoint))


@pytest.fixture(scope="module")
def long_recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Longer than what is recognised at a time."""
    path = tmp_path_factory.mktemp("long") / "long.wav"
    t = np.arange(11 * RATE) / RATE
    soundfile.write(path, 0.4 * np.sin(2 * math.pi * 200 * t * (1 + 0.3 * np.sin(t))), RATE)
    return path


@pytest.mark.parametrize(
    "settings",
    [
        RecognitionConfig(beam=4),
        RecognitionConfig(beam=2, chunk=6, left_context=12),
        RecognitionConfig(beam=4, streaming="lookahead"),
        RecognitionConfig(beam=4, max_tokens_per_frame=1),
    ],
    ids=["as configured", "other chunks", "lookahead", "one token per frame"],
)
def test_transcripts_are_those_of_the_search(system: System, long_recording: Path, settings: RecognitionConfig) -> None:
    text, times = searched(system, long_recording, settings)
    transcript = system.transcribe(long_recording, settings)
    assert transcript.text == transcript.stable == text
    assert " ".join(word.text for word in transcript.words) == text
    assert len(transcript.words) > 5
    assert transcript.words[0].start == pytest.approx(times[0])
    assert transcript.words[-1].end == pytest.approx(times[-1] + 0.04)
    assert {word.start for word in transcript.words} <= set(times)


def test_settings_make_a_difference(system: System, long_recording: Path) -> None:
    wide, narrow = RecognitionConfig(beam=4), RecognitionConfig(beam=4, chunk=1, left_context=0)
    ahead = RecognitionConfig(beam=4, streaming="lookahead")
    assert len({system.transcribe(long_recording, settings).text for settings in (wide, narrow, ahead)}) == 3


def test_samples_streams_and_files_agree(system: System, folder: Path) -> None:
    path = folder / "1.wav"
    expected = system.transcribe(path)
    integers, _ = soundfile.read(path, dtype="int16")
    assert system.transcribe(integers) == system.transcribe(str(path)) == expected
    stream = system.stream()
    before = stream.partial()
    assert (before.text, before.words) == ("", [])
    for piece in np.array_split(integers, 7):
        assert stream.accept(piece) == stream.partial()
    assert stream.finish() == stream.partial() == expected
    assert stream.seconds == len(integers) / RATE and stream.revisions.updates > 3


def test_systems_without_chunks_transcribe_but_do_not_stream(tmp_path: Path, folder: Path) -> None:
    write_checkpoint(tmp_path / "epoch-1.pt", causal=False)
    system = transducer_gn.load(tmp_path / "epoch-1.pt")
    path = folder / "1.wav"
    expected = searched(system, path, RecognitionConfig(beam=4))[0]
    assert system.transcribe(path).text == expected != ""
    with pytest.raises(UserError, match="streaming needs chunks"):
        system.stream()
    with pytest.raises(UserError, match="there is none"):
        system.transcribe(torch.zeros(0))
    with pytest.raises(UserError, match="--chunk: this system looks ahead and has no chunks"):
        system.transcribe(folder / "0.wav", RecognitionConfig(chunk=4))


def test_a_folder_stands_for_its_best_epoch(tmp_path: Path, checkpoint: Path) -> None:
    shutil.copy(checkpoint, tmp_path / "epoch-1.pt")
    shutil.copy(checkpoint, tmp_path / "epoch-2.pt")
    (tmp_path / "best.json").write_text(json.dumps({"epoch": 2}))
    assert transducer_gn.load(tmp_path).name == "epoch-2"
    assert load_checkpoint_system(tmp_path, average=True).name == "epoch-2"
    assert transducer_gn.load(tmp_path, choice=SystemConfig(epoch=1)).name == "epoch-1"
    chosen = transducer_gn.load(tmp_path / "epoch-1.pt", choice=SystemConfig(alpha=0.5))
    assert (chosen.name, chosen.alpha, chosen.device.type) == ("epoch-1", 0.5, "cpu")
    assert chosen.fingerprint != load_checkpoint_system(tmp_path / "epoch-1.pt").fingerprint


def test_what_cannot_be_loaded_is_said_in_a_sentence(tmp_path: Path, checkpoint: Path) -> None:
    with pytest.raises(UserError, match="no checkpoint .*none.pt"):
        transducer_gn.load(tmp_path / "none.pt")
    with pytest.raises(UserError, match="no finished epoch"):
        transducer_gn.load(tmp_path)
    with pytest.raises(UserError, match="epoch-1.pt: this file is one epoch"):
        transducer_gn.load(checkpoint, choice=SystemConfig(epoch=2))
    with pytest.raises(UserError, match="device nowhere"):
        transducer_gn.load(checkpoint, device="nowhere")


def test_a_system_is_where_it_was_told_to_be_or_where_there_is_a_gpu(checkpoint: Path, monkeypatch) -> None:
    # A device that every build of torch has and that is not the one to fall back to.
    elsewhere = torch.device("meta")
    assert load_checkpoint_system(checkpoint, device=elsewhere).device == elsewhere
    monkeypatch.setattr("transducer_gn.recognition.system.chosen_device", lambda: elsewhere)
    assert load_checkpoint_system(checkpoint).device == elsewhere
    assert load_checkpoint_system(checkpoint, device=torch.device("cpu")).device.type == "cpu"


def test_what_cannot_be_recognised_is_said_in_a_sentence(system: System, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "stereo.wav", np.zeros((4000, 2)), RATE)
    soundfile.write(tmp_path / "slow.wav", np.zeros(4000), 8000)
    for name, sentence in (("stereo", "2 channels"), ("slow", "8000 samples per second"), ("none", "no such file")):
        with pytest.raises(UserError, match=f"{name}.wav: .*{sentence}"):
            system.transcribe(tmp_path / f"{name}.wav")
    with pytest.raises(UserError, match="8000 samples per second"):
        system.transcribe(np.zeros(4000, dtype=np.float32), sampling_rate=8000)
    with pytest.raises(UserError, match="must be mono"):
        system.transcribe(np.zeros((4000, 2), dtype=np.float32))
    with pytest.raises(UserError, match="without any audio"):
        system.transcribe(np.zeros(0, dtype=np.float32))
    with pytest.raises(UserError, match="audio"):
        system.transcribe(np.zeros(0, dtype=np.float32), RecognitionConfig(streaming="lookahead"))
    for refuse in (system.stream, lambda settings: system.transcribe(torch.zeros(4000), settings)):
        with pytest.raises(UserError, match="use beam search"):
            refuse(RecognitionConfig(method="greedy"))
    with pytest.raises(UserError, match="use beam search"):
        system.transcribe(torch.zeros(4000), RecognitionConfig(method="greedy", streaming="lookahead"))


ALONE = """
import sys

REFUSED = ("espeakng_loader", "phonemizer", "tensorboard", "torch.utils.tensorboard", "matplotlib")
REFUSED += tuple(f"transducer_gn.{name}" for name in ("training", "evaluation", "reporting", "synthetic", "commands"))

class Refusal:
    def find_spec(self, name, path=None, target=None):
        if any(name == refused or name.startswith(refused + ".") for refused in REFUSED):
            raise ImportError(f"{name} is not installed")

sys.meta_path.insert(0, Refusal())
import transducer_gn
assert "torch" not in sys.modules and "lhotse" not in sys.modules
import torch
torch.set_num_threads(1)
system = transducer_gn.load(sys.argv[1])
noise = 0.1 * torch.randn(24000, generator=torch.Generator().manual_seed(0))
stream = system.stream()
for piece in noise.split(5000):
    stream.accept(piece)
assert stream.finish() == system.transcribe(noise)
print(system.transcribe(noise).text)
"""


def test_using_a_system_needs_nothing_but_itself(system: System, checkpoint: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", ALONE, str(checkpoint)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    noise = 0.1 * torch.randn(24000, generator=torch.Generator().manual_seed(0))
    assert result.stdout.strip() == system.transcribe(noise).text != ""


def test_the_page_about_it_runs(checkpoint: Path, folder: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    exp = tmp_path / "exp" / "mini" / "alpha-0.3"
    exp.mkdir(parents=True)
    shutil.copy(checkpoint, exp / "epoch-4.pt")
    (exp / "best.json").write_text(json.dumps({"epoch": 4}))
    shutil.copy(folder / "1.wav", tmp_path / "speech.wav")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "recognition.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/recognition.md", "exec"), names)
    output = capsys.readouterr().out
    assert output.splitlines()[0] == names["transcript"].text != ""
    # What the page says is printed.
    (comment,) = re.findall(r"print\(error\)  # (.*)", page)
    assert comment in output.splitlines()
