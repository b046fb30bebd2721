"""Invariant: features and audio that cannot be read end in a sentence that names the utterance, also where another
process loads batches, and what it says to do makes them again.
"""

import re
import subprocess
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest

from transducer_gn.common.errors import UserError
from transducer_gn.config import BatchConfig, NoiseConfig
from transducer_gn.data.batches import Batches, Inputs, collate_audio, collate_features
from transducer_gn.data.cuts import named_audio, read_cut, reason
from transducer_gn.data.features import cuts_of_part, fbank, noise_recordings
from transducer_gn.data.manifest_files import write_json_lines
from transducer_gn.data.prepared import PreparedData

SETTINGS = BatchConfig(max_duration=12, num_workers=0)


@pytest.fixture
def data(prepared, tmp_path) -> PreparedData:
    """The tiny corpus, whose features may be damaged."""
    for name in ("manifests", "fbank", "parts.json", "cuts_train.jsonl.gz"):
        subprocess.run(["cp", "-r", prepared / name, tmp_path], check=True)
    (tmp_path / "corpus").symlink_to(prepared / "corpus")
    return PreparedData(tmp_path)


def spoil_zeros(path):
    path.write_bytes(bytes(path.stat().st_size))


def spoil_cut_off(path):
    path.write_bytes(path.read_bytes()[:100])


def spoil_missing(path):
    path.unlink()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("spoil", [spoil_zeros, spoil_cut_off, spoil_missing])
def test_damaged_features_are_named(data, prepared, spoil, workers):
    tokenizer = PreparedData(prepared).tokenizer(60)
    batches = Batches(data.train_cuts(), tokenizer, replace(SETTINGS, num_workers=workers), training=True)
    archive = data.folder / "fbank" / "train-mini" / "00000.lca"
    spoil(archive)
    ids = "|".join(cut.id for cut in data.train_cuts())
    sentence = rf"^the features of ({ids}) cannot be read from {archive} \(.*\); delete .*, and run prepare.sh again$"
    with pytest.raises(UserError, match=sentence):
        list(batches)


def test_what_the_sentence_says_makes_the_features_again(data, prepared, program):
    archive = data.folder / "fbank" / "dev-mini" / "00000.lca"
    spoil_zeros(archive)
    with pytest.raises(UserError) as caught:
        collate_features(data.cuts("dev-mini"), None)
    for name in re.findall(r"(\S+\.jsonl\.gz)", str(caught.value)):
        Path(name).unlink()
    program("compute_features", "--data-dir", data.folder)
    for name in ("dev-mini/00000.lca", "cuts_dev-mini.jsonl.gz"):
        assert (data.folder / "fbank" / name).read_bytes() == (prepared / "fbank" / name).read_bytes()


def test_damaged_noise_is_named_beside_what_it_is_mixed_into(data, prepared):
    noise = [cut.drop_supervisions() for cut in data.cuts("dev-mini")]
    settings = replace(SETTINGS, noise=NoiseConfig(enabled=True, probability=1.0))
    tokenizer = PreparedData(prepared).tokenizer(60)
    batches = Batches(data.train_cuts(), tokenizer, settings, training=True, inputs=Inputs(noise=noise))
    spoil_zeros(data.folder / "fbank" / "dev-mini" / "00000.lca")
    with pytest.raises(UserError, match="train-mini/00000.lca or .*dev-mini/00000.lca"):
        list(batches)


@pytest.mark.parametrize("collate", [collate_audio, lambda cuts: collate_features(cuts, fbank())])
def test_audio_that_is_gone_or_damaged_is_named(data, collate, tmp_path):
    (cut,) = data.cuts("dev-mini").subset(first=1)
    for path in ("nowhere.flac", "broken.flac"):
        (tmp_path / "broken.flac").write_bytes(b"fLaC")
        source = replace(cut.recording.sources[0], source=str(tmp_path / path))
        broken = replace(cut, recording=replace(cut.recording, sources=[source]))
        with pytest.raises(UserError, match=rf"^the audio of {cut.id} cannot be read \(.*\); put the file back"):
            collate([broken])


def test_other_errors_are_not_taken_for_damage(data):
    (cut,) = data.cuts("dev-mini").subset(first=1)
    with pytest.raises(KeyboardInterrupt), named_audio(cut):
        raise KeyboardInterrupt


def test_a_reason_is_one_line():
    assert reason(ValueError("bad data.\n[extra info] When calling: a cut of ten lines")) == "ValueError: bad data"
    assert reason(EOFError()) == "EOFError: "


def recording_values(**changes):
    source = {"type": "file", "channels": [0], "source": "corpus/a.flac"}
    recording = {"id": "a", "sources": [source], "sampling_rate": 16000, "num_samples": 16000, "duration": 1.0}
    return recording | {"channel_ids": [0]} | changes


def supervision_values(**changes):
    return {"id": "a", "recording_id": "a", "start": 0.0, "duration": 1.0, "channel": 0, "text": "A"} | changes


def source_values(kind):
    return [{"type": kind, "channels": [0], "source": "touch harm"}]


def cut_values(**changes):
    cut = {"id": "a", "start": 0.0, "duration": 1.0, "channel": 0, "supervisions": [supervision_values()]}
    return cut | {"recording": recording_values(), "type": "MonoCut"} | changes


def feature_values(kind):
    return {"type": "kaldi-fbank", "num_frames": 100, "num_features": 80, "frame_shift": 0.01, "sampling_rate": 16000,
            "start": 0.0, "duration": 1.0, "storage_type": kind, "storage_path": "a", "storage_key": "0,1"}  # fmt: skip


def test_no_command_is_run_and_no_server_asked_for_what_a_manifest_names():
    """Lhotse would: a manifest from elsewhere could do anything."""
    assert read_cut(cut_values(features=feature_values("lilcom_chunky"))).id == "a"
    for kind in ("command", "url"):
        broken = cut_values(recording=recording_values(sources=source_values(kind)))
        tracks = [{"cut": values, "type": "MonoCut", "offset": 0.0} for values in (cut_values(), broken)]
        for values in (broken, {"id": "m", "type": "MixedCut", "tracks": tracks}):
            with pytest.raises(ValueError, match=f"its audio is not in a file but in '{kind}'"):
                # lhotse takes apart what it is given.
                read_cut(deepcopy(values))
    for kind in ("kaldiio", "lilcom_url"):
        with pytest.raises(ValueError, match=f"its features are not in a file but in '{kind}'"):
            read_cut(cut_values(features=feature_values(kind)))


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (recording_values(id=1), "its id must be a text"),
        (recording_values(sources=source_values("command")), "not in a file but in 'command'"),
        (recording_values(duration=2.0), "16000 samples, 16000 in a second, and lasts 2.0 s"),
        (recording_values(sampling_rate=8000, duration=2.0), "8000 in a second"),
        (recording_values(duration=float("inf")), "it lasts inf s"),
        (recording_values(duration=1e9, num_samples=16 * 10**12), "more than a day"),
        ({}, "KeyError|TypeError|missing"),
    ],
)
def test_recordings_that_are_none_are_named(tmp_path, values, problem):
    path = tmp_path / "manifests" / "recordings_musan.jsonl.gz"
    path.parent.mkdir()
    write_json_lines(path, [recording_values(), values])
    with pytest.raises(UserError, match=f"^{path}, line 2: .*({problem}).*; delete it and run prepare.sh again$"):
        noise_recordings(tmp_path)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (supervision_values(text=None), "line 1: .*its text must be a text"),
        (supervision_values(duration=0.0), "line 1: .*it lasts 0.0 s"),
        (supervision_values(recording_id="b"), "are not of the same utterances"),
        (None, "are not of the same utterances"),
    ],
)
def test_supervisions_that_are_none_are_named(tmp_path, values, problem):
    folder = tmp_path / "manifests"
    folder.mkdir()
    write_json_lines(folder / "recordings_dev.jsonl.gz", [recording_values()])
    write_json_lines(folder / "supervisions_dev.jsonl.gz", [supervision_values()])
    (cut,) = cuts_of_part(tmp_path, "dev")
    assert cut.recording.id == cut.id == cut.supervisions[0].id == "a"
    write_json_lines(folder / "supervisions_dev.jsonl.gz", [] if values is None else [values])
    with pytest.raises(UserError, match=problem):
        cuts_of_part(tmp_path, "dev")
