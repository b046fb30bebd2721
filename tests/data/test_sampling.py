"""Invariant: classes of duration hold about the same amount of audio."""

import random
from bisect import bisect_right

import pytest

from transducer_gn.data.sampling import Remaining, duration_bins


@pytest.mark.parametrize("buckets", [2, 5, 10])
def test_classes_hold_about_the_same_amount_of_audio(buckets):
    draw = random.Random(0)
    durations = [draw.uniform(1, 20) for _ in range(3000)]
    bins = duration_bins(durations, buckets)
    assert len(bins) == buckets - 1 and bins == sorted(bins)
    totals = [0.0] * buckets
    for duration in durations:
        totals[bisect_right(bins, duration)] += duration
    assert max(totals) < 1.05 * min(totals)


def test_few_utterances_or_one_class_need_no_borders():
    assert duration_bins([1.0, 2.0, 3.0], 1) == duration_bins([1.0], 5) == duration_bins([], 5) == []


def test_what_was_consumed_is_stepped_over():
    assert list(Remaining(iter("abcd"), 2)) == ["c", "d"]
    assert list(Remaining(iter("ab"), 5)) == []
