"""Invariant: seconds add up by part; on a GPU, and only where asked to be exact, a part waits before and after."""

import pytest
import torch

from transducer_gn.training.clock import Clock


@pytest.fixture
def events(monkeypatch):
    """What a clock does, in order; each look at the time is a second after the one before."""
    done = []
    monkeypatch.setattr("time.perf_counter", lambda: done.append("time") or float(done.count("time")))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: done.append(f"wait for {device}"))
    return done


@pytest.mark.parametrize(("device", "exact"), [("cpu", False), ("cpu", True), ("cuda:1", False), ("cuda:1", True)])
def test_parts_are_timed_with_all_their_work(events, device, exact):
    clock = Clock(torch.device(device))
    clock.exact = exact
    with clock.part("search"):
        events.append("work")
    wait = ["wait for cuda:1"] if exact and device == "cuda:1" else []
    assert events == [*wait, "time", "work", *wait, "time"]


def test_seconds_add_up_until_they_are_taken(events):
    clock = Clock(torch.device("cpu"))
    for name in ("search", "backward", "search"):
        with clock.part(name):
            pass
    assert clock.take() == {"search": 2.0, "backward": 1.0}
    assert clock.take() == {}
