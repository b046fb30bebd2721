"""Where the time of an update goes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Clock:
    """Adds up seconds by part of the update.

    On a GPU work runs on after a call returns; with `exact` each part synchronises, which costs time itself, so it is
    switched on for a few updates only.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.exact = False
        self.seconds: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the block's time under `name`."""
        self._synchronise()
        start = time.perf_counter()
        yield
        self._synchronise()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def take(self) -> dict[str, float]:
        """The seconds so far; starts again from none."""
        seconds, self.seconds = self.seconds, {}
        return seconds

    def _synchronise(self) -> None:
        if self.exact and self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
