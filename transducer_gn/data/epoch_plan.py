"""Which utterances form which batches of an epoch, known before any of them is read.

A plan follows from durations and a seed alone. It is made at once for a whole epoch, so that the number of batches, the
largest of them and those after any position can be looked up.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

# The largest corpus that lhotse's samplers plan, and the largest whose cuts stay in memory (a few kB each).
SMALL_CORPUS = 20000

Positions = NDArray[np.int64]
Seconds = NDArray[np.float64]


def is_small(utterances: int) -> bool:
    """Whether a corpus of so many utterances is small."""
    return utterances <= SMALL_CORPUS


@dataclass(frozen=True)
class EpochPlan:
    """One rank's batches of one epoch.

    Attributes:
        positions: [N] utterances by their place in the manifest, batch after batch
        borders: [B + 1] batch b is positions[borders[b] : borders[b + 1]]
        copies: what is added to the ids of utterances that stand in the plan a second time, by place in `positions`
    """

    positions: Positions
    borders: Positions
    copies: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, pieces: Sequence["Piece"]) -> "EpochPlan":
        """Return the plan whose batches are `pieces`, in this order."""
        borders = np.concatenate([[0], np.cumsum([len(piece.positions) for piece in pieces])]).astype(np.int64)
        slots = ((range(borders[number], borders[number + 1]), piece.copy) for number, piece in enumerate(pieces))
        copies = {slot: copy for places, copy in slots if copy for slot in places}
        positions = np.concatenate([piece.positions for piece in pieces]) if pieces else np.zeros(0, np.int64)
        return cls(positions, borders, copies)

    def __len__(self) -> int:
        return len(self.borders) - 1

    def batch(self, number: int) -> list[tuple[int, str]]:
        """Return the utterances of a batch, each with what is added to its id."""
        slots = range(int(self.borders[number]), int(self.borders[number + 1]))
        return [(int(self.positions[slot]), self.copies.get(slot, "")) for slot in slots]

    def largest(self, durations: Seconds) -> list[int]:
        """Return the batch with most audio, padding included, and that with the longest utterance, if it is another."""
        if len(self) == 0:
            return []
        longest = np.maximum.reduceat(durations[self.positions], self.borders[:-1])
        most_audio, most_frames = int(np.argmax(np.diff(self.borders) * longest)), int(np.argmax(longest))
        return list(dict.fromkeys((most_audio, most_frames)))


@dataclass(frozen=True)
class Packing:
    """How batches are filled.

    Attributes:
        bins: borders between classes of duration; a batch holds utterances of one class
        max_duration: seconds of a batch, padding included
    """

    bins: Sequence[float]
    max_duration: float


def random_order(count: int, seed: int) -> Positions:
    """Return 0 .. count - 1 in an order that depends on the seed alone, whatever the version of numpy."""
    return np.argsort(np.random.PCG64(seed).random_raw(count), kind="stable")


def pack(durations: Seconds, packing: Packing, seed: int) -> tuple[list[Positions], NDArray[np.int64]]:
    """Draw batches from all utterances at once; return them, class by class, and the class of each.

    Utterances of one class of duration are taken in random order until the batch is full. The last batch of a class
    may be smaller.
    """
    shuffled = random_order(len(durations), seed)
    classes = np.searchsorted(np.asarray(packing.bins), durations[shuffled], side="left")
    order = shuffled[np.argsort(classes, kind="stable")]
    borders, kinds = [0], []
    size, longest, current = 0, 0.0, -1
    for slot, (seconds, kind) in enumerate(zip(durations[order].tolist(), np.sort(classes).tolist(), strict=True)):
        if size and (kind != current or (size + 1) * max(longest, seconds) > packing.max_duration):
            borders.append(slot)
            kinds.append(current)
            size, longest = 0, 0.0
        size, longest, current = size + 1, max(longest, seconds), kind
    if size:
        borders.append(len(order))
        kinds.append(current)
    return [order[start:end] for start, end in pairwise(borders)], np.array(kinds, np.int64)


@dataclass(frozen=True)
class Piece:
    """A batch or a part of one.

    Attributes:
        positions: its utterances
        origin: which batch it comes from
        copy: what is added to their ids: nothing, unless they come again
    """

    positions: Positions
    origin: int
    copy: str = ""


def split_up(batches: Sequence[Positions], wanted: int) -> list[Piece]:
    """Make at least `wanted` batches of fewer, by cutting the largest in two as often as it takes.

    Where each batch is one utterance already, they come again.
    """
    pieces = [Piece(batch, number) for number, batch in enumerate(batches)]
    sizes = [len(batch) for batch in batches]
    while len(pieces) < wanted and (most := max(sizes)) > 1:
        place, half = sizes.index(most), most // 2
        whole = pieces[place]
        parts = whole.positions[:half], whole.positions[half:]
        pieces[place : place + 1] = [Piece(part, whole.origin) for part in parts]
        sizes[place : place + 1] = [half, most - half]
    turns = range(len(pieces), wanted)
    again = [replace(pieces[turn % len(pieces)], copy=f"_dup{turn // len(pieces) - 1}") for turn in turns]
    return pieces + again


def plan_share(durations: Seconds, packing: Packing, seed: int, rank: int, ranks: int) -> EpochPlan:
    """Plan a large corpus: every utterance in one batch of one rank, equally many batches for all ranks.

    At each step all ranks have batches of the same class of duration, so that none waits for another; only the last
    few of each class meet those of its neighbours. If their number cannot be shared out, the largest are cut in two.
    """
    batches, kinds = pack(durations, packing, seed)
    numbers = np.arange(len(batches))
    inside = numbers - np.searchsorted(kinds, kinds, side="left")
    sizes = np.searchsorted(kinds, kinds, side="right") - np.searchsorted(kinds, kinds, side="left")
    whole = inside < sizes // ranks * ranks
    rest = numbers[~whole]
    shared = len(rest) // ranks * ranks
    steps = np.concatenate([numbers[whole], rest[:shared]]).reshape(-1, ranks)
    left = rest[shared:]
    if len(left) and len(steps) and sum(len(batches[number]) for number in left) < ranks:
        # One utterance, say, is not enough to cut: the step with the shortest utterances, which has most, helps out.
        left, steps = np.concatenate([steps[0], left]), steps[1:]
    mine = [Piece(batches[number], number) for number in steps[:, rank]]
    if len(left):
        mine += split_up([batches[number] for number in left], -(-len(left) // ranks) * ranks)[rank::ranks]
    return EpochPlan.of([mine[number] for number in random_order(len(mine), seed ^ 1)])
