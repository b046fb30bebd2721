"""Invariant: bad input is named, with file and reason; by default nothing is made of it, with --skip-bad all but it."""

import os
import subprocess
import sys

import numpy as np
import pytest
import soundfile
from small_corpora import REPOSITORY, write_chapter

from transducer_gn.common.errors import UserError
from transducer_gn.data.manifest_files import read_json_lines
from transducer_gn.data.manifests import make_manifests

VICTIM = "1-7-0001"


def spoil_missing_transcript(folder):
    transcript = folder / "1-7.trans.txt"
    transcript.write_text("".join(line for line in transcript.open() if not line.startswith(VICTIM)))


def spoil_empty_transcript(folder):
    transcript = folder / "1-7.trans.txt"
    transcript.write_text("".join(f"{VICTIM} \n" if line.startswith(VICTIM) else line for line in transcript.open()))


def spoil_duplicate_id(folder):
    with (folder / "1-7.trans.txt").open("a") as file:
        file.write(f"{VICTIM} SAID TWICE\n")


def spoil_truncated(folder):
    path = folder / f"{VICTIM}.flac"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def spoil_header_only(folder):
    path = folder / f"{VICTIM}.flac"
    path.write_bytes(path.read_bytes()[:30])


def spoil_empty_file(folder):
    (folder / f"{VICTIM}.flac").write_bytes(b"")


def spoil_zero_length(folder):
    # A FLAC header that is whole and says: 16 kHz, one channel, 16 bits, no samples.
    stream_info = bytes([16, 0, 16, 0]) + bytes(6) + (16000 << 44 | 15 << 36).to_bytes(8, "big") + bytes(16)
    (folder / f"{VICTIM}.flac").write_bytes(b"fLaC" + bytes([0x80, 0, 0, 34]) + stream_info)


def spoil_promise(folder):
    """A header that tells of 2 ** 36 - 1 samples, more than there is memory for."""
    path = folder / f"{VICTIM}.flac"
    content = bytearray(path.read_bytes())
    content[21:26] = bytes([content[21] | 15]) + b"\xff" * 4
    path.write_bytes(content)


def spoil_not_finite(folder):
    samples = np.full(16000, np.nan, dtype=np.float32)
    soundfile.write(folder / f"{VICTIM}.flac", samples, 16000, format="WAV", subtype="FLOAT")


def spoil_silent(folder):
    soundfile.write(folder / f"{VICTIM}.flac", np.zeros(16000), 16000)


def spoil_sampling_rate(folder):
    soundfile.write(folder / f"{VICTIM}.flac", 0.1 * np.random.default_rng(0).standard_normal(8000), 8000)


def spoil_stereo(folder):
    soundfile.write(folder / f"{VICTIM}.flac", 0.1 * np.random.default_rng(0).standard_normal((8000, 2)), 16000)


def spoil_not_audio(folder):
    (folder / f"{VICTIM}.flac").write_text("this is not audio")


def spoil_missing_audio(folder):
    (folder / f"{VICTIM}.flac").unlink()


FAULTS = {
    spoil_missing_transcript: "missing transcript",
    spoil_empty_transcript: "empty transcript",
    spoil_duplicate_id: "duplicate utterance id",
    spoil_truncated: "truncated",
    spoil_header_only: "truncated",
    spoil_empty_file: "empty",
    spoil_zero_length: "zero length",
    spoil_promise: "truncated",
    spoil_not_finite: "NaN or infinite",
    spoil_silent: "silent",
    spoil_sampling_rate: "sampling rate 8000 Hz",
    spoil_stereo: "2 channels",
    spoil_not_audio: "truncated or not FLAC",
    spoil_missing_audio: "there is no 1-7-0001.flac",
}
ROLES = {"train": ["train-a"], "dev": ["dev-a"], "test": []}


@pytest.mark.parametrize("spoil", FAULTS, ids=lambda spoil: spoil.__name__)
def test_each_fault_stops_with_its_name_and_can_be_skipped(spoil, small_corpus, tmp_path):
    spoil(small_corpus / "train-a" / "1" / "7")
    data = tmp_path / "data"
    (data / "manifests").mkdir(parents=True)
    with pytest.raises(UserError, match=f"(?s)1 bad utterances.*--skip-bad.*{VICTIM}.*({FAULTS[spoil]})"):
        make_manifests(small_corpus, ROLES, data, jobs=1, skip_bad=False)
    assert os.listdir(data / "manifests") == [] and not (data / "parts.json").exists()

    make_manifests(small_corpus, ROLES, data, jobs=2, skip_bad=True)
    ids = {entry["id"] for entry in read_json_lines(data / "manifests" / "recordings_train-a.jsonl.gz")}
    expected = {f"{speaker}-7-{index:04d}" for speaker in (1, 2) for index in range(3)}
    # Of an id that stands twice in the transcript, the first line counts.
    assert ids == (expected if spoil is spoil_duplicate_id else expected - {VICTIM})
    assert VICTIM in (data / "bad_input.txt").read_text()


def test_the_same_id_in_two_parts_is_a_duplicate(small_corpus, tmp_path):
    write_chapter(small_corpus / "dev-a" / "1" / "7", [VICTIM])
    (tmp_path / "data" / "manifests").mkdir(parents=True)
    with pytest.raises(UserError, match=f"(?s){VICTIM}.*duplicate utterance id, also in train-a"):
        make_manifests(small_corpus, ROLES, tmp_path / "data", jobs=1, skip_bad=False)


def test_a_part_without_a_good_utterance_is_refused_even_with_skip_bad(small_corpus, tmp_path):
    for file in (small_corpus / "dev-a").rglob("*.flac"):
        file.write_bytes(b"")
    (tmp_path / "data" / "manifests").mkdir(parents=True)
    with pytest.raises(UserError, match="dev-a .* has no good utterance"):
        make_manifests(small_corpus, ROLES, tmp_path / "data", jobs=1, skip_bad=True)


def test_good_input_leaves_no_list_of_bad_input(small_corpus, tmp_path):
    (tmp_path / "data" / "manifests").mkdir(parents=True)
    (tmp_path / "data" / "bad_input.txt").write_text("of an earlier call")
    make_manifests(small_corpus, ROLES, tmp_path / "data", jobs=1, skip_bad=False)
    assert not (tmp_path / "data" / "bad_input.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--corpus", "nowhere"], "'nowhere' is neither a known corpus nor a folder"),
        (["--stages", "1"], "unknown option --stages"),
        (["--stage"], "--stage needs a value"),
        (["--nj", "two"], "--nj must be a whole number, not 'two'"),
        (["--nj", "0"], "--nj must be at least 1"),
    ],
)
def test_prepare_names_a_wrong_flag(program, arguments, sentence):
    result = program("prepare", *arguments, check=False)
    assert result.returncode == 2
    assert sentence in result.stderr and result.stdout == ""


def test_a_folder_that_cannot_be_written_is_named(program, tmp_path):
    (tmp_path / "file").write_text("in the way")
    result = program("prepare", "--data-dir", tmp_path / "file" / "data", check=False)
    assert result.returncode == 2
    assert f"cannot write to {tmp_path / 'file' / 'data'}" in result.stderr


FULL_DISK = """
import errno, runpy, sys
import lhotse.features.io as io

def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device", "somewhere.lca")

io.LilcomChunkyWriter.write = full
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_full_disk_is_named_and_nothing_half_written_counts(program, environment, prepared, tmp_path):
    for name in ("manifests", "parts.json"):
        subprocess.run(["cp", "-r", prepared / name, tmp_path], check=True)
    (tmp_path / "corpus").symlink_to(prepared / "corpus")
    script = REPOSITORY / "local" / "compute_features.py"
    command = [sys.executable, "-c", FULL_DISK, script, "--data-dir", tmp_path, "--nj", "2"]
    result = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True)
    assert result.returncode == 2
    assert "somewhere.lca: the disk is full; free some space and call again" in result.stderr
    assert not list((tmp_path / "fbank").rglob("*.lca")) and not list((tmp_path / "fbank").glob("cuts_*"))
    program("compute_features", "--data-dir", tmp_path)
    manifest = "fbank/cuts_train-mini.jsonl.gz"
    assert (tmp_path / manifest).read_bytes() == (prepared / manifest).read_bytes()
