"""Invariant: an index gives the cuts of a manifest by their place, and is made anew only if the manifest changed."""

import pickle
import subprocess

import pytest
from lhotse import CutSet

from transducer_gn.data import epoch_plan, index
from transducer_gn.data.index import ManifestIndex, TemporaryIndex
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
