"""Invariant: the rehearsal of LibriSpeech's size, on a few thousand utterances: lengths as published, all ranks with
all workers in lockstep without an utterance twice, a resumed rank at its place, and a check that finds what is wrong;
the same from Shar.
"""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from transducer_gn.data import epoch_plan, shar_plan
from transducer_gn.data.index import ManifestIndex
from transducer_gn.data.prepared import PreparedData

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark():
    """The benchmark's file as a module, with its neighbours."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        path = BENCHMARKS / "librispeech_scale.py"
        specification = importlib.util.spec_from_file_location("librispeech_scale", path)
        module = sys.modules[specification.name] = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def rehearsal(benchmark):
    return benchmark.Rehearsal(cuts=3000, world_size=3, workers=2, resume_at=50, steps=6)


@pytest.fixture(scope="module")
def folder(benchmark, rehearsal, tmp_path_factory):
    folder = tmp_path_factory.mktemp("scale")
    benchmark.librispeech_manifest.make_prepared_folder(folder, rehearsal.cuts)
    return folder


@pytest.fixture(autouse=True)
def large(monkeypatch):
    """Take 3,000 utterances for a large corpus."""
    monkeypatch.setattr(epoch_plan, "SMALL_CORPUS", 1000)


def test_lengths_are_the_published_ones(benchmark):
    made = benchmark.librispeech_manifest
    assert made.UTTERANCES * len(made.SPEEDS) == sum(count for count, _ in made.PARTS.values()) == 843723
    seconds = np.array([one for _, one in made.durations(50000, seed=1)])
    hours = seconds.mean() * 843723 / 3600
    assert hours == pytest.approx(made.PUBLISHED_HOURS, rel=0.02)
    assert np.quantile(seconds, 0.5) == pytest.approx(13.6, abs=0.2) and seconds.max() < 33.1


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_ranks_in_lockstep_and_a_rank_alone(benchmark, rehearsal, folder):
    assert benchmark.make_index(rehearsal, folder) > 0
    assert isinstance(PreparedData(folder).training_utterances(), ManifestIndex)
    found = benchmark.run_alone(rehearsal, folder) | benchmark.run_resumed(rehearsal, folder)
    assert found["resumed_at"] == 50 < found["batches"]
    locked = benchmark.run_in_lockstep(rehearsal, folder)
    assert locked["utterances_loaded"] > rehearsal.world_size * rehearsal.steps
    result = benchmark.report(rehearsal, found | locked | {"index": 1.0, "lhotse": 2.0})
    assert result["ratios"]["resume_over_limit"] == found["resume"] / 60


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_ranks_that_load_the_same_are_found(benchmark, rehearsal, folder, monkeypatch):
    share = epoch_plan.plan_share
    monkeypatch.setattr("transducer_gn.data.sampling.plan_share", lambda *a: share(*a[:3], 0, a[4]))
    with pytest.raises(AssertionError, match="every utterance in one batch of the epoch, no utterance loaded twice"):
        benchmark.run_in_lockstep(replace(rehearsal, steps=2, workers=0), folder)


@pytest.fixture(scope="module")
def shar(benchmark, rehearsal, folder):
    """The same rehearsal with a Shar export, whose tar files are faked."""
    benchmark.librispeech_manifest.make_shar_export(folder, 100)
    with benchmark.librispeech_manifest.faked_shards():
        yield replace(rehearsal, shard_size=100)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_an_epoch_of_shar_is_whole(benchmark, shar, folder):
    found = benchmark.run_alone(shar, folder) | benchmark.run_resumed(shar, folder)
    assert found["resumed_at"] == 50 < found["batches"]
    # 2 workers hold no more than all their utterances: a third of 3,000 of 12 s.
    assert 0 < found["held"] < 1100 * 14 * benchmark.BYTES_PER_SECOND
    locked = benchmark.run_in_lockstep(shar, folder)
    assert locked["utterances_loaded"] > shar.world_size * shar.steps


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_lanes_that_load_the_same_are_found(benchmark, shar, folder, monkeypatch):
    deal = shar_plan.deal
    monkeypatch.setattr("transducer_gn.data.shar.deal", lambda *a: [deal(*a)[0]] * a[3])
    with pytest.raises(AssertionError, match="not so: every utterance in one batch of the epoch"):
        benchmark.run_in_lockstep(replace(shar, steps=2), folder)
