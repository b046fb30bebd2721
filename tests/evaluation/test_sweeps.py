"""Invariant: every epoch of a run, and every size of chunks, is decoded and measured once, with its own parameters or
chunks, and apart from what a report of the best epoch is made of.
"""

import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from small_systems import write_checkpoint

from transducer_gn.commands import over_chunks, over_epochs
from transducer_gn.common.errors import UserError
from transducer_gn.common.json_files import write_json
from transducer_gn.config import EvaluationDataConfig, LatencyConfig, RecognitionConfig, StreamingConfig, SystemConfig
from transducer_gn.data.prepared import PreparedData
from transducer_gn.evaluation import sweeps
from transducer_gn.evaluation.decoding import PartDecoder
from transducer_gn.evaluation.latency_results import FOLDER, Latency
from transducer_gn.evaluation.results import Results, write_results
from transducer_gn.evaluation.sweeps import CHUNKS, EPOCHS, measure_point, trained_epochs
from transducer_gn.recognition.system import load_system
from transducer_gn.reporting.runs import read_run

FLAGS = ["--sets", "[test]", "--beam", "2", "--utterances", "4"]


@pytest.fixture(scope="module")
def measured(runs, tmp_path_factory):
    """A copy of the local run, of which every epoch, and the second with chunks of two sizes, was measured."""
    folder = tmp_path_factory.mktemp("epochs") / "local"
    shutil.copytree(runs / "local", folder, ignore=shutil.ignore_patterns("*_search", "latency", "tensorboard"))
    over_epochs.main(["--exp-dir", str(folder), *FLAGS])
    over_chunks.main(["--exp-dir", str(folder), "--epoch", "2", "--chunks", "[2,4]", *FLAGS])
    return folder


def test_every_epoch_has_results_of_its_own_parameters(measured):
    found = EPOCHS.find(measured, "test")
    assert trained_epochs(measured) == [epoch.number for epoch in found] == [1, 2, 3]
    for epoch in found:
        parameters = load_system(measured, SystemConfig(epoch=epoch.number)).fingerprint
        assert epoch.results.identity["parameters"] == epoch.latency.identity["parameters"] == parameters
        assert len(epoch.results.utterances) == 8 and len(epoch.latency.utterances) == 4
    assert EPOCHS.find(measured, "dev") == []


def test_results_of_the_run_itself_are_untouched(measured):
    run = read_run(measured)
    assert run.results == {} and run.latencies == {}


def test_every_size_has_results_with_its_own_chunks(measured, tmp_path):
    found = CHUNKS.find(measured, "test")
    assert [point.number for point in found] == [2, 4]
    system = load_system(measured, SystemConfig(epoch=2))
    for point in found:
        settings = RecognitionConfig(beam=2, chunk=point.number)
        data = PreparedData(Path(system.config.data.folder))
        alone = PartDecoder(tmp_path / str(point.number), system, settings, data, "test", 200.0).run()
        assert point.results == alone
        assert point.latency.identity["settings"]["chunk"] == point.number
        assert len(point.latency.utterances) == 4
    assert found[0].latency.utterances != found[1].latency.utterances


def test_a_second_call_does_nothing(measured):
    def times():
        return {path: path.stat().st_mtime_ns for path in measured.glob("*s/*-*/**/*") if path.is_file()}

    before = times()
    over_epochs.main(["--exp-dir", str(measured), *FLAGS])
    over_chunks.main(["--exp-dir", str(measured), "--epoch", "2", "--chunks", "[2,4]", *FLAGS])
    assert len(before) > 10 and times() == before


def test_without_sizes_it_is_that_of_the_system(runs, tmp_path):
    shutil.copytree(runs / "local", tmp_path / "local", ignore=shutil.ignore_patterns("*_search", "latency"))
    over_chunks.main(["--exp-dir", str(tmp_path / "local"), "--epoch", "1", "--display", "false", *FLAGS])
    own = load_system(runs / "local", SystemConfig(epoch=1)).config.model.streaming.chunk
    assert [point.number for point in CHUNKS.find(tmp_path / "local", "test")] == [own]


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--chunks", "[4,0]"], "--chunks: must be above 0"),
        (["--chunk", "4"], "--chunk: stands for one size"),
        (["--streaming", "lookahead"], "--streaming: lookahead has no chunks"),
        (["--method", "greedy"], "--method: live texts"),
    ],
)
def test_sizes_that_cannot_be(runs, flags, problem):
    with pytest.raises(UserError, match=problem):
        over_chunks.main(["--exp-dir", str(runs / "local"), *flags])
    assert not (runs / "local" / "chunks").exists()


def test_a_system_that_hears_whole_utterances_has_no_sizes(tmp_path, caplog):
    (tmp_path / "lookahead").mkdir()
    write_checkpoint(tmp_path / "lookahead" / "epoch-1.pt", causal=False)
    with caplog.at_level("INFO"):
        over_chunks.main(["--exp-dir", str(tmp_path / "lookahead"), "--epoch", "1", "--chunks", "[4]"])
    assert not CHUNKS.place(tmp_path / "lookahead", 4).parent.exists()


def test_chunks_of_a_causal_system_that_is_configured_for_none(tmp_path, monkeypatch):
    write_checkpoint(tmp_path / "epoch-1.pt", streaming=StreamingConfig(chunk=None, left_context=None))
    measured = []
    monkeypatch.setattr(
        over_chunks, "measure_point", lambda folder, system, settings, *_: measured.append(settings.chunk)
    )
    over_chunks.main(["--exp-dir", str(tmp_path), "--epoch", "1"])
    assert measured == []
    over_chunks.main(["--exp-dir", str(tmp_path), "--epoch", "1", "--chunks", "[4,6]"])
    assert measured == [4, 6]


def test_times_of_another_system_are_no_part_of_a_point(tmp_path):
    place = CHUNKS.place(tmp_path, 4)
    for folder in ("beam_search", FOLDER):
        (place / folder).mkdir(parents=True)
    write_results(place / "beam_search", Results("test", "s", {"parameters": "new"}, []))
    path = place / FOLDER / "latency-test-s.json"
    for parameters, is_part in (("old", False), ("new", True)):
        write_json(path, asdict(Latency("test", "s", {"parameters": parameters, "format": 2}, [])))
        (point,) = CHUNKS.find(tmp_path, "test")
        assert (point.latency is not None) == is_part


def test_greedy_search_is_refused_only_of_live_texts(tmp_path, monkeypatch):
    monkeypatch.setattr(sweeps, "prepared_data", lambda *_: None)
    monkeypatch.setattr(sweeps, "chosen_parts", lambda *_: [])
    greedy, choice = RecognitionConfig(method="greedy"), EvaluationDataConfig()
    for causal in (True, False):
        (tmp_path / str(causal)).mkdir()
        write_checkpoint(tmp_path / str(causal) / "epoch-1.pt", causal=causal)
    chunked, whole = (load_system(tmp_path / str(causal), SystemConfig(epoch=1)) for causal in (True, False))
    with pytest.raises(UserError, match="--method: live texts"):
        measure_point(tmp_path, chunked, greedy, choice, LatencyConfig())
    measure_point(tmp_path, chunked, greedy, choice, LatencyConfig(display=False))
    # What hears whole utterances shows nothing before their end.
    measure_point(tmp_path, whole, greedy, choice, LatencyConfig())


def test_a_run_without_epochs_is_named(tmp_path):
    with pytest.raises(UserError, match="has no epoch-N.pt"):
        over_epochs.main(["--exp-dir", str(tmp_path)])
