"""Invariant: an index gives the cuts of a manifest by their place, and is made anew only if the manifest changed; what
is damaged of it is named, with what to do.
"""

import json
import os
import pickle
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from lhotse import CutSet

from transducer_gn.common.errors import UserError
from transducer_gn.config import BatchConfig
from transducer_gn.data import epoch_plan, index
from transducer_gn.data.batches import Batches
from transducer_gn.data.index import DURATIONS, FINGERPRINT, LINES, OFFSETS, ManifestIndex, TemporaryIndex, write_index
from transducer_gn.data.manifest_files import read_lines, write_lines
from transducer_gn.data.prepared import PreparedData


@pytest.fixture
def data(prepared, tmp_path, monkeypatch):
    """The training manifest in a folder of its own, taken for a large one."""
    monkeypatch.setattr(epoch_plan, "SMALL_CORPUS", 10)
    subprocess.run(["cp", prepared / "cuts_train.jsonl.gz", tmp_path], check=True)
    return PreparedData(tmp_path)


def test_cuts_are_those_of_the_manifest_in_any_order_and_process(data):
    found, expected = data.training_utterances(), list(data.train_cuts())
    assert isinstance(found, ManifestIndex) and len(found) == len(expected)
    for place in (5, 0, len(expected) - 1):
        assert found.cut(place) == expected[place]
    assert found.durations.tolist() == [cut.duration for cut in expected]
    assert pickle.loads(pickle.dumps(found)).cut(3) == expected[3]


def test_an_index_that_is_done_with_keeps_no_file_open(data):
    def opened():
        return sum(Path(link).resolve() == data.training_utterances().folder / LINES for link in handles())

    def handles():
        return [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]

    used = data.training_utterances()
    used.cut(0)
    assert opened() == 1
    del used
    assert opened() == 0


def test_a_small_manifest_needs_none(data, monkeypatch):
    monkeypatch.setattr(epoch_plan, "SMALL_CORPUS", 1000)
    assert isinstance(data.training_utterances(), CutSet) and not (data.folder / "cuts_train.index").exists()


def test_numbers_of_tokens_are_counted_once_for_each_model(data, prepared, monkeypatch):
    models = [PreparedData(prepared).tokenizer(size) for size in (60, 32)]
    for tokenizer in models:
        expected = [len(tokenizer.encode(cut.supervisions[0].text)) for cut in data.train_cuts()]
        assert data.training_utterances().tokens(tokenizer).tolist() == expected
    monkeypatch.setattr(index, "counted", None)
    for tokenizer in models:
        data.training_utterances().tokens(tokenizer)


def test_an_index_is_made_once_and_again_for_another_manifest(data, prepared, monkeypatch):
    tokenizer = PreparedData(prepared).tokenizer(60)
    before = data.training_utterances()
    before.tokens(tokenizer)
    fingerprint = before.fingerprint
    with monkeypatch.context() as once:
        once.setattr(index, "write_index", None)
        assert data.training_utterances().fingerprint == fingerprint
    manifest = data.folder / "cuts_train.jsonl.gz"
    write_lines(manifest, list(read_lines(manifest))[::-1])
    again, cuts = data.training_utterances(), list(data.train_cuts())
    assert again.cut(0) == cuts[0] and again.fingerprint != fingerprint
    assert again.tokens(tokenizer).tolist() == [len(tokenizer.encode(cut.supervisions[0].text)) for cut in cuts]


def test_an_index_that_was_cut_off_is_made_again(data):
    data.training_utterances()
    (data.folder / "cuts_train.index" / "index.json").unlink()
    (data.folder / "cuts_train.index" / "lines.jsonl").write_bytes(b"")
    assert data.training_utterances().cut(2) == list(data.train_cuts())[2]


def test_where_nothing_may_be_written_that_is_said_and_the_manifest_read_as_it_is(data, monkeypatch, caplog):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(index, "write_array", refuse)
    assert isinstance(data.training_utterances(), CutSet) and "cannot be written to" in caplog.text


def test_a_temporary_index_goes_with_its_object(data):
    found = TemporaryIndex(data.train_cuts())
    folder = found.folder
    assert found.cut(4) == list(data.train_cuts())[4] and folder.is_dir()
    del found
    assert not folder.exists()


def cut_line(**changes):
    cut = {"id": "a", "start": 0.0, "duration": 1.5, "channel": 0, "type": "MonoCut"}
    said = {"id": "a", "recording_id": "a", "start": 0.0, "duration": 1.5, "text": "A"}
    return json.dumps(cut | {"supervisions": [said]} | changes).encode()


@pytest.fixture
def small(tmp_path):
    """The index of three utterances."""
    write_index([cut_line(id=name) for name in "abc"], tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        (OFFSETS, lambda x: x[:-1], "3 places for 3 utterances"),
        (OFFSETS, lambda x: x - 1, "do not part"),
        (OFFSETS, lambda x: x[::-1].copy(), "do not part"),
        (OFFSETS, lambda x: x[[0, 2, 1, 3]], "do not part"),
        (OFFSETS, lambda x: x * 10**12, "do not part"),
        (OFFSETS, lambda x: x.astype(float), "ValueError"),
        (DURATIONS, lambda x: x * np.nan, "not all are above zero"),
        (DURATIONS, lambda x: -x, "not all are above zero"),
        (DURATIONS, lambda x: x[:0], "4 places for 0 utterances"),
        (DURATIONS, lambda x: x.astype(int), "ValueError"),
    ],
)
def test_arrays_that_cannot_be_are_named_on_opening(small, name, change, problem):
    np.save(small / name, change(np.load(small / name)))
    with pytest.raises(
        UserError, match=f"({DURATIONS}|{OFFSETS}) is damaged .*{problem}.*delete {small} and call again"
    ):
        ManifestIndex(small)


def spoil_line(small, number, line):
    """Put another line in the place of one; it has the same length."""
    lines = (small / LINES).read_bytes().splitlines()
    lines[number] = line.ljust(len(lines[number]))[: len(lines[number])]
    (small / LINES).write_bytes(b"\n".join([*lines, b""]))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"\xff", "decode"),
        (b"nothing", "Expecting value"),
        (b"[]", "must be names and values"),
        (b"{}", "TypeError: .*missing"),
        (cut_line(supervisions=[]), "does not say what is said"),
        (cut_line(duration=2.5), "lasts 2.5 s, not 1.5"),
        (cut_line(id=1), "its id must be a text"),
    ],
)
def test_a_damaged_line_is_named_when_it_is_read(small, line, problem):
    spoil_line(small, 1, line)
    found = ManifestIndex(small)
    assert found.cut(0).id == "a" and found.cut(2).id == "c"
    with pytest.raises(
        UserError, match=rf"{LINES} is damaged \(utterance 2: .*{problem}.*delete {small} and call again"
    ):
        found.cut(1)


def test_lines_that_went_while_they_were_read_are_named(small):
    found = ManifestIndex(small)
    (small / LINES).write_bytes(b"")
    with pytest.raises(UserError, match=rf"{LINES} is damaged \(utterance 1: Expecting value"):
        found.cut(0)


def test_tokens_of_a_damaged_line_and_of_other_utterances_are_named(small, prepared):
    tokenizer = PreparedData(prepared).tokenizer(60)
    found = ManifestIndex(small)
    counts = found.tokens(tokenizer)
    path = small / f"tokens-{tokenizer.fingerprint}.npy"
    for wrong in (counts[:-1], -counts - 1, counts.astype(float)):
        np.save(path, wrong)
        with pytest.raises(UserError, match=f"{path} is damaged .*delete {small} and call again"):
            found.tokens(tokenizer)
    path.unlink()
    spoil_line(small, 2, b'{"supervisions": [{"text": null}]}')
    with pytest.raises(UserError, match=rf"{LINES} is damaged \(utterance 3: its text must be a text"):
        found.tokens(tokenizer)
    assert not path.exists()


def test_a_damaged_fingerprint_is_named(small):
    (small / FINGERPRINT).write_bytes(b"\xff" * 64)
    with pytest.raises(UserError, match=f"{FINGERPRINT} is damaged"):
        _ = ManifestIndex(small).fingerprint


@pytest.mark.parametrize("line", [b"x", b"[]", cut_line(id=None), cut_line(duration="1"), cut_line(duration=-1)])
def test_no_index_is_made_of_a_manifest_with_a_line_that_is_no_cut(tmp_path, line):
    with pytest.raises(UserError, match=f"{tmp_path}: line 2 of its manifest is no cut .*run prepare.sh again"):
        write_index([cut_line(), line], tmp_path)


@pytest.mark.parametrize("workers", [0, 2])
def test_training_on_a_damaged_index_ends_in_a_sentence(data, prepared, workers):
    found = data.training_utterances()
    batches = Batches(found, PreparedData(prepared).tokenizer(60), BatchConfig(num_workers=workers), training=True)
    path = found.folder / LINES
    path.write_bytes(path.read_bytes().replace(b'"id"', b'"di"'))
    with pytest.raises(UserError, match=rf"^{re.escape(str(path))} is damaged \(utterance \d+: .*call again$"):
        list(batches)
