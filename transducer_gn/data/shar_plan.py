"""Which worker reads which part of a Shar export in an epoch, and which batches it makes of that.

A lane is one worker of one rank. The shards of an epoch, in an order of its own, are one long stream of utterances;
each lane reads a stretch of it, all stretches of equally much audio. It holds a bounded number of utterances and makes
batches of those. All this follows from durations and a seed, so that every rank knows how many batches each lane has
before a shard is opened, and all have equally many.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transducer_gn.common.seeds import stable_seed
from transducer_gn.data.epoch_plan import EpochPlan, Packing, Piece, Positions, Seconds, pack, random_order, split_up


@dataclass(frozen=True)
class Lane:
    """What a lane does in an epoch.

    Attributes:
        stream: [N] utterances in the order in which they are read
        plan: its batches
        read: [B] how many of the stream are to be read by batch b: all it needs, and some of what comes after
    """

    stream: Positions
    plan: EpochPlan
    read: NDArray[np.int64]


def deal(usable: Positions, shards: Positions, durations: Seconds, lanes: int, seed: int) -> list[Positions]:
    """Return the stream of each lane: the usable utterances of the shards in random order, cut into equal stretches.

    Every lane has at least one utterance, however long those of its neighbours are.

    Args:
        usable: utterances that may be in batches, in ascending order; at least as many as there are lanes
        shards: [S + 1] shard s holds the utterances from shards[s] to shards[s + 1]
        durations: seconds of all utterances
        lanes: number of lanes
        seed: the order of the shards depends on it
    """
    turns = np.argsort(random_order(len(shards) - 1, seed))
    stream = usable[np.argsort(turns[np.searchsorted(shards, usable, side="right") - 1], kind="stable")]
    ends = np.cumsum(durations[stream])
    places = np.arange(1, lanes)
    cuts = np.searchsorted(ends, ends[-1] * places / lanes)
    # Each cut leaves an utterance to the lane before it, and one for each lane after it.
    cuts = np.maximum.accumulate(np.maximum(cuts - places, 0)) + places
    return np.split(stream, np.minimum(cuts, len(stream) - lanes + places))


def batch_stream(
    stream: Positions, durations: Seconds, packing: Packing, held: int, seed: int
) -> tuple[list[Positions], list[int]]:
    """Return the batches of a stream, and how much of it is to be read by each.

    So many utterances as may be `held` are batched; while batches leave, as many of what comes after are read. What
    does not fill a batch waits for those, and is held besides.
    """
    waiting = stream[:0]
    batches: list[Positions] = []
    read: list[int] = []
    for start in range(0, len(stream), held):
        end = min(start + held, len(stream))
        candidates = np.concatenate([waiting, stream[start:end]])
        drawn = stable_seed("held", seed, start)
        packed, kinds = pack(durations[candidates], packing, drawn)
        found = [candidates[places] for places in packed]
        if end < len(stream):
            unfilled = np.append(kinds[1:] != kinds[:-1], True)
            waiting = np.concatenate([found[number] for number in np.flatnonzero(unfilled)])
            found = [found[number] for number in np.flatnonzero(~unfilled)]
        ahead = min(held, len(stream) - end)
        batches += [found[number] for number in random_order(len(found), drawn ^ 1)]
        read += [end + ahead * turn // len(found) for turn in range(1, len(found) + 1)]
    return batches, read


def plan_lanes(streams: list[Positions], durations: Seconds, packing: Packing, held: int, seed: int) -> list[Lane]:
    """Plan all lanes: every utterance once, equally many batches each; lanes with fewer cut some in two."""
    made = [
        batch_stream(stream, durations, packing, held, stable_seed("lane", seed, lane))
        for lane, stream in enumerate(streams)
    ]
    most = max(len(batches) for batches, _ in made)
    lanes = []
    for stream, (batches, read) in zip(streams, made, strict=True):
        pieces: list[Piece] = split_up(batches, most)
        lanes.append(Lane(stream, EpochPlan.of(pieces), np.array([read[piece.origin] for piece in pieces])))
    return lanes
