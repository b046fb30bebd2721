"""Invariant: lengths of time carry over at 60 seconds and 60 minutes."""

from transducer_gn.common.durations import duration, rough_duration


def test_clock():
    assert [duration(x) for x in (0, 59.6, 65, 3599.4, 3599.6, 3661.4)] == [
        "00:00", "01:00", "01:05", "59:59", "1:00:00", "1:01:01",
    ]  # fmt: skip


def test_rough():
    seconds = (5.04, 119.96, 120, 700, 7169, 7171, 73800)
    assert [rough_duration(x) for x in seconds] == [
        "5.0 s", "120.0 s", "2 min", "12 min", "119 min", "2 h 00 min", "20 h 30 min",
    ]  # fmt: skip
