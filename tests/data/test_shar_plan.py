"""Invariant: whatever the durations, each lane has something to read, each utterance is in one lane, and all lanes have
equally many batches.
"""

import numpy as np
import pytest

from transducer_gn.data.epoch_plan import Packing
from transducer_gn.data.shar_plan import deal, plan_lanes

PACKING = Packing([2.0, 5.0], 30.0)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "durations",
    [
        [19.0, 1.0, 1.0, 1.0],
        [1.0, 1.0, 1.0, 1.0, 19.0, 1.0],
        [0.5] * 30 + [18.0] * 2,
        [float(seconds) for seconds in range(1, 20)],
    ],
    ids=["as many as lanes", "one for most of the audio", "two for most of the audio", "rising"],
)
def test_lanes_of_very_unequal_utterances(durations, seed):
    seconds, shards = np.array(durations), np.arange(len(durations) + 1)
    streams = deal(np.arange(len(durations)), shards, seconds, 4, seed)
    assert len(streams) == 4 and min(map(len, streams)) >= 1
    assert sorted(np.concatenate(streams).tolist()) == list(range(len(durations)))
    lanes = plan_lanes(streams, seconds, PACKING, 10, seed)
    assert len({len(lane.plan) for lane in lanes}) == 1
    assert set(np.concatenate([lane.plan.positions for lane in lanes]).tolist()) == set(range(len(durations)))


def test_stretches_have_equally_much_audio():
    seconds = np.random.default_rng(0).uniform(1, 17, 5000)
    streams = deal(np.arange(5000), np.arange(0, 5001, 50), seconds, 8, seed=3)
    audio = [seconds[stream].sum() for stream in streams]
    assert max(audio) - min(audio) < 2 * 17
