"""Invariant: prepare.sh takes a corpus to checked manifests; killed at any moment, the next call completes with the
same bytes; a finished folder is left alone; anything in LibriSpeech's layout works.
"""

import os
import signal
import subprocess
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
from small_corpora import REPOSITORY, TINY, tree_bytes, write_chapter

from transducer_gn.common.errors import UserError
from transducer_gn.config import BatchConfig, NoiseConfig
from transducer_gn.data.batches import Batches, Inputs
from transducer_gn.data.layout import read_roles
from transducer_gn.data.prepared import PreparedData

RECORDED = REPOSITORY.parent / "shared" / "data"


def times(folder: Path) -> dict[str, int]:
    return {str(file): file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file() and file.name != ".lock"}


def kill_all_of(process: subprocess.Popen) -> None:
    """Kill a call and everything it started, as if the machine had been switched off."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_second_call_does_nothing(program, prepared):
    before = times(prepared)
    result = program("prepare", "--data-dir", prepared, "--stage", "1", "--vocab-sizes", "60,32")
    assert times(prepared) == before
    assert result.stdout.count("complete") == 7


def test_killed_again_and_again_it_ends_with_the_same_bytes(program, environment, prepared, tmp_path):
    speak = ["--corpus-dir", tmp_path / "corpus", *TINY]
    prepare = ["--data-dir", tmp_path, "--stage", "1", "--vocab-sizes", "60,32", "--nj", "1"]
    commands = [
        [environment["TRANSDUCER_GN_VENV"] + "/bin/python", REPOSITORY / "local" / "make_mini_corpus.py", *speak],
        [REPOSITORY / "prepare.sh", *prepare],
    ]
    kills = 0
    for command in commands:
        # Each call is given a little longer than the last, so that every stage is hit at several places.
        patience = 0.25
        while True:
            silent = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            process = subprocess.Popen(list(map(str, command)), env=environment, start_new_session=True, **silent)
            try:
                assert process.wait(timeout=patience) == 0
                break
            except subprocess.TimeoutExpired:
                kill_all_of(process)
                kills += 1
                patience *= 1.4
    assert kills >= 5
    ours, expected = (tree_bytes(folder, "*.jsonl*") | tree_bytes(folder, "*.flac") for folder in (tmp_path, prepared))
    assert ours.keys() == expected.keys()
    assert all(ours[name] == expected[name] for name in expected)
    assert tree_bytes(tmp_path, "*.lca") == tree_bytes(prepared, "*.lca")
    assert tree_bytes(tmp_path, "*.model") == tree_bytes(prepared, "*.model")


def test_a_call_waits_for_what_a_killed_one_left_running(program, environment, prepared):
    lock = subprocess.Popen(["flock", prepared / ".lock", "sleep", "2"])
    time.sleep(0.3)
    result = program("prepare", "--data-dir", prepared, "--stage", "1", "--stop-stage", "1")
    assert "Waiting for another prepare.sh" in result.stderr and lock.poll() == 0


def test_a_librispeech_tree_with_speeds_noise_and_shar(program, tmp_path):
    downloads, data = tmp_path / "downloads", tmp_path / "data"
    for part, speaker in (("train-clean-5", 11), ("train-clean-5", 12), ("dev-clean-2", 13)):
        write_chapter(downloads / "LibriSpeech" / part / str(speaker) / "1", [f"{speaker}-1-{i:04d}" for i in range(6)])
    (downloads / "musan" / "noise").mkdir(parents=True)
    noise = 0.1 * np.random.default_rng(0).standard_normal(16000 * 12)
    soundfile.write(downloads / "musan" / "noise" / "n1.wav", noise, 16000)
    flags = ["--corpus", "mini-librispeech", "--dl-dir", downloads, "--data-dir", data, "--musan", "--shar"]
    program("prepare", *flags, "--vocab-sizes", "22", "--shard-size", "10", "--nj", "2")

    prepared = PreparedData(data)
    assert read_roles(data) == {"train": ["train-clean-5"], "dev": ["dev-clean-2"], "test": []}
    cuts = list(prepared.train_cuts())
    assert len(cuts) == 36 and sum("_sp0.9" in cut.id for cut in cuts) == 12
    assert len(list(prepared.cuts("dev-clean-2"))) == 6
    assert [cut.id for cut in cuts] != sorted(cut.id for cut in cuts)
    assert [cut.duration for cut in prepared.noise_cuts()] == [10.0]
    settings = BatchConfig(max_duration=10, num_workers=0, noise=NoiseConfig(enabled=True))
    noise = prepared.noise_cuts()
    batches = Batches(
        prepared.train_cuts(), prepared.tokenizer(22), settings, training=True, inputs=Inputs(noise=noise)
    )
    assert sum(len(batch) for batch in batches) == 36
    assert {folder.name for folder in (data / "shar").iterdir() if folder.is_dir()} == {"train", "dev-clean-2"}


def test_any_folder_in_the_layout_with_roles_as_told_and_bad_input_skipped(program, small_corpus, tmp_path):
    (small_corpus / "train-a" / "1" / "7" / "1-7-0001.flac").write_bytes(b"fLaC")
    flags = ["--corpus", small_corpus, "--data-dir", tmp_path / "data", "--vocab-sizes", "20", "--token-model", "bpe"]
    flags += ["--speed-factors", "none", "--test", "dev-a"]
    result = program("prepare", *flags, check=False)
    assert result.returncode == 2 and "1-7-0001.flac: the audio cannot be read" in result.stderr
    assert not (tmp_path / "data" / "fbank").exists()
    result = program("prepare", *flags, "--skip-bad")
    assert "Parts for train: train-a\nParts for dev: none\nParts for test: dev-a" in result.stdout
    assert "Left out 1 bad utterances" in result.stdout
    prepared = PreparedData(tmp_path / "data")
    assert len(list(prepared.train_cuts())) == 5 and prepared.tokenizer(20, "bpe").vocab_size == 20


def test_an_unprepared_folder_is_named(tmp_path):
    with pytest.raises(UserError, match="holds no prepared data"):
        PreparedData(tmp_path).parts("train")
    with pytest.raises(UserError, match="run ./prepare.sh"):
        PreparedData(tmp_path).train_cuts()


def test_describe_prints_every_part_and_draws(program, prepared, tmp_path):
    result = program("describe", "--data-dir", prepared, "--figure", tmp_path / "figure.png", "--examples", "4")
    rows = {line.split()[0]: line.split() for line in result.stdout.splitlines()[4:7]}
    assert rows["train-mini"][1:3] == ["train", "60"] and rows["dev-mini"][1:3] == ["dev", "16"]
    assert "8 ambiguous, 4 control, 4 ordinary" in result.stdout
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    missing = program("describe", "--data-dir", tmp_path, check=False)
    assert missing.returncode == 2 and "holds no prepared data" in missing.stderr


@pytest.mark.skipif(not (RECORDED / "an4-test.tar").is_file(), reason="needs the recorded speech in ../shared/data")
def test_recorded_speech(program, tmp_path):
    with tarfile.open(RECORDED / "an4-test.tar") as archive:
        archive.extractall(tmp_path / "packed", filter="data")
    root = tmp_path / "packed" / "an4-test"
    for packed in root.rglob("*.opus"):
        samples, rate = soundfile.read(packed)
        soundfile.write(packed.with_suffix(".flac"), samples, rate)
    root.rename(tmp_path / "packed" / "train")
    data = tmp_path / "data"
    flags = ["--corpus", tmp_path / "packed", "--data-dir", data, "--vocab-sizes", "60", "--speed-factors", "none"]
    program("prepare", *flags)
    prepared = PreparedData(data)
    batches = list(Batches(prepared.train_cuts(), prepared.tokenizer(60), BatchConfig(num_workers=0), training=True))
    assert sum(len(batch) for batch in batches) == 130
    assert {group for batch in batches for group in batch.groups} == {"ordinary"}
