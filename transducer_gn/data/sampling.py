"""Which utterances form which batch: lhotse's dynamic bucketing, fresh for every epoch and numbered."""

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.dataset import DynamicBucketingSampler, DynamicCutSampler
from lhotse.dataset.sampling.base import CutSampler
from torch.utils.data import Sampler

from transducer_gn.common.seeds import stable_seed
from transducer_gn.config import BatchConfig
from transducer_gn.data.filtering import FilterReport


@dataclass(frozen=True)
class NumberedCuts:
    """The cuts of one batch; epoch and number over all ranks identify it."""

    epoch: int
    number: int
    cuts: CutSet


class EpochSampler:
    """Makes the batches of any epoch, from any position, always in the same way.

    lhotse's samplers can save their state too, but they count what workers have fetched ahead as done. Here nothing
    is saved but a number of batches: an epoch's sampler is made anew and steps over that many, without loading
    anything; at LibriSpeech's size that takes a minute or two at worst.
    """

    def __init__(
        self, cuts: CutSet, report: FilterReport, settings: BatchConfig, training: bool, rank: int, world_size: int
    ) -> None:
        self._cuts = cuts
        self._settings = settings
        self._training = training
        self._rank = rank
        self._world_size = world_size
        self._fingerprint = report.fingerprint
        self._bins = duration_bins(report.durations, settings.num_buckets)

    def identity(self) -> dict[str, Any]:
        """What the sequence of batches depends on besides the settings."""
        return {"utterances": self._fingerprint, "world size": self._world_size, "training": self._training}

    def batches(self, epoch: int, skip: int) -> "Remaining":
        """Return this rank's batches of `epoch` but the first `skip`."""
        return Remaining(self._numbered(epoch), skip)

    def _numbered(self, epoch: int) -> Iterator[NumberedCuts]:
        """Yield this rank's batches of an epoch."""
        limit, rank, ranks = self._settings.max_duration, self._rank, self._world_size
        if self._training:
            seed = stable_seed("order", self._settings.seed, epoch)
            shares = dict(max_duration=limit, rank=rank, world_size=ranks)
            sampler = bucketing_sampler(self._cuts, self._bins, self._settings.buffer_size, seed, **shares)
        else:
            # lhotse would give all ranks equally many batches by repeating utterances; error rates count each once.
            with warnings.catch_warnings():
                # About cuts in memory: small corpora are fine.
                warnings.simplefilter("ignore", UserWarning)
                everything = DynamicCutSampler(self._cuts, max_duration=limit, shuffle=False, rank=0, world_size=1)
            sampler = islice(everything, rank, None, ranks)
        with warnings.catch_warnings():
            # About small buffers: small corpora are fine.
            warnings.simplefilter("ignore", UserWarning)
            for number, cuts in zip(count(rank, ranks), sampler):
                yield NumberedCuts(epoch, number, cuts)


def bucketing_sampler(
    cuts: Iterable[Cut], bins: list[float], buffer_size: int, seed: int, **arguments: Any
) -> CutSampler:
    """Return lhotse's sampler for shuffled training batches of utterances of similar length."""
    with warnings.catch_warnings():
        # About eager cut sets and small buffers: small corpora are fine.
        warnings.simplefilter("ignore", UserWarning)
        return DynamicBucketingSampler(
            cuts,
            shuffle=True,
            duration_bins=bins,
            buffer_size=buffer_size,
            seed=seed,
            # All ranks draw from the same bucket at a time, so that none waits for another. (Without it lhotse 1.33
            # also ends an epoch as soon as it meets an empty bucket, and loses what the others hold.)
            sync_buckets=True,
            **arguments,
        )


class Remaining(Sampler[NumberedCuts]):
    """The batches of one epoch from a position on; can be iterated once."""

    def __init__(self, batches: Iterator[NumberedCuts], skip: int) -> None:
        self._batches = batches
        self._skip = skip

    def __iter__(self) -> Iterator[NumberedCuts]:
        return islice(self._batches, self._skip, None)


def duration_bins(durations: list[float], num_buckets: int) -> list[float]:
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
