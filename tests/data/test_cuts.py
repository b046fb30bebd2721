"""Invariant: features and audio that cannot be read end in a sentence that names the utterance, also where another
process loads batches, and what it says to do makes them again.
"""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from transducer_gn.common.errors import UserError
from transducer_gn.config import BatchConfig, NoiseConfig
from transducer_gn.data.batches import Batches, Inputs, collate_audio, collate_features
from transducer_gn.data.cuts import named_audio, reason
from transducer_gn.data.features import fbank
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
