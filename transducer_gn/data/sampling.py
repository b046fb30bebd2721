"""Which utterances form which batch: plans of epochs for one rank, made anew from the seed whenever they are asked for.

Small corpora are batched by lhotse's dynamic bucketing. It draws from a buffer, shuffles a class of durations anew for
every batch, and has to be run to the end of an epoch before its batches can be counted: a second or two for 20,000
utterances, a minute for LibriSpeech at three speeds. Large corpora are therefore planned from all durations at once.
"""

import warnings
from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np
from lhotse import CutSet, MonoCut
from lhotse.dataset import DynamicBucketingSampler, DynamicCutSampler

from transducer_gn.common.seeds import stable_seed
from transducer_gn.config import BatchConfig
from transducer_gn.data.epoch_plan import EpochPlan, Packing, Seconds, is_small, plan_share


class EpochSampler:
    """Plans the batches of any epoch, always in the same way; remembers the plan that it made last.

    lhotse's samplers can save their state, but they count what workers have fetched ahead as done. Here nothing is
    saved but a number of batches, by which a plan tells what is left.

    Args:
        durations: [N] seconds of each utterance
        settings: how batches are made
        training: whether batches are shuffled and made of utterances of similar length
        rank: this process's number
        world_size: number of processes that train together
    """

    def __init__(
        self, durations: Seconds, settings: BatchConfig, training: bool, rank: int = 0, world_size: int = 1
    ) -> None:
        self._durations = durations
        self._settings = settings
        self._training = training
        self._rank = rank
        self._world_size = world_size
        self._packing = Packing(duration_bins(durations.tolist(), settings.num_buckets), settings.max_duration)
        self._last: tuple[int, EpochPlan] | None = None

    @property
    def is_large(self) -> bool:
        """Whether training batches are planned from all durations at once."""
        return self._training and not is_small(len(self._durations))

    def plan(self, epoch: int) -> EpochPlan:
        """Return this rank's batches of an epoch."""
        if self._last is None or self._last[0] != epoch:
            self._last = (epoch, self._make_plan(epoch))
        return self._last[1]

    def _make_plan(self, epoch: int) -> EpochPlan:
        seed = stable_seed("order", self._settings.seed, epoch)
        if self.is_large:
            return plan_share(self._durations, self._packing, seed, self._rank, self._world_size)
        with warnings.catch_warnings():
            # About cuts in memory and small buffers: small corpora are fine.
            warnings.simplefilter("ignore", UserWarning)
            return plan_of(self._shuffled(seed) if self._training else self._in_order())

    def _shuffled(self, seed: int) -> Iterable[CutSet]:
        """Yield shuffled training batches of utterances of similar length, equally many on all ranks."""
        return DynamicBucketingSampler(
            stand_ins(self._durations),
            shuffle=True,
            duration_bins=list(self._packing.bins),
            max_duration=self._packing.max_duration,
            buffer_size=self._settings.buffer_size,
            seed=seed,
            # All ranks draw from the same bucket at a time, so that none waits for another. (Without it lhotse 1.33
            # also ends an epoch as soon as it meets an empty bucket, and loses what the others hold.)
            sync_buckets=True,
            rank=self._rank,
            world_size=self._world_size,
        )

    def _in_order(self) -> Iterable[CutSet]:
        """Yield batches of neighbours.

        lhotse would give all ranks equally many batches by repeating utterances; error rates count each once.
        """
        limit = self._packing.max_duration
        cuts = stand_ins(self._durations)
        everything = DynamicCutSampler(cuts, max_duration=limit, shuffle=False, rank=0, world_size=1)
        return islice(everything, self._rank, None, self._world_size)


def stand_ins(durations: Seconds) -> CutSet:
    """Return cuts that have nothing but a duration, and their place for an id: all that a sampler looks at."""
    return CutSet.from_cuts(MonoCut(str(place), 0.0, value, 0, []) for place, value in enumerate(durations.tolist()))


def plan_of(batches: Iterable[CutSet]) -> EpochPlan:
    """Return batches of stand-ins as a plan; what lhotse adds to the ids of repeated cuts is kept."""
    borders, names = [0], []
    for batch in batches:
        names += [cut.id.partition("_") for cut in batch]
        borders.append(len(names))
    positions = np.array([int(place) for place, _, _ in names], np.int64)
    copies = {slot: mark + copy for slot, (_, mark, copy) in enumerate(names) if mark}
    return EpochPlan(positions, np.array(borders, np.int64), copies)


def duration_bins(durations: Sequence[float], num_buckets: int) -> list[float]:
    """Return the borders between classes of duration that hold about the same amount of audio each."""
    if min(num_buckets, len(durations)) < 2:
        return []
    ordered = sorted(durations)
    share = sum(ordered) / min(num_buckets, len(ordered))
    bins, total = [], 0.0
    for duration in ordered:
        if total > share:
            bins.append(duration)
            total = 0.0
        total += duration
    return bins
