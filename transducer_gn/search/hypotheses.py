"""What a search returns, and the hypotheses of one utterance while it is on its way."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from transducer_gn.common.errors import NotFiniteError
from transducer_gn.search.prefix import Prefix

if TYPE_CHECKING:
    # For type checkers alone: runtimes without torch have beams, too.
    from torch import Tensor

# The frames at which a hypothesis emitted its tokens, as the last of them and those before it.
Times = tuple[int, "Times"] | None


@dataclass(frozen=True)
class NBest:
    """Distinct token sequences of each utterance, best first; at least one per utterance.

    Attributes:
        tokens: per utterance, per hypothesis, the token ids
        scores: per utterance, per hypothesis, the log-sum over the alignments that the search kept
        times: per utterance, per hypothesis, the frame at which each token was emitted in the best of these alignments
    """

    tokens: list[list[list[int]]]
    scores: list[list[float]]
    times: list[list[list[int]]]

    def best(self, count: int) -> "NBest":
        """The `count` best of each utterance by score, of equal ones the first."""
        orders = [sorted(range(len(own)), key=lambda i: -own[i])[:count] for own in self.scores]
        return NBest(*(_reordered(lists, orders) for lists in (self.tokens, self.scores, self.times)))


def _reordered(lists: list[list[Any]], orders: list[list[int]]) -> list[list[Any]]:
    """The entries that `orders` names of each utterance's list."""
    return [[own[i] for i in order] for own, order in zip(lists, orders, strict=True)]


@dataclass(eq=False, slots=True, weakref_slot=True)
class Beam:
    """The hypotheses of one utterance between two frames, best first; overwritten at every frame.

    Attributes:
        root: the prefix that all hypotheses begin with: the empty one, or what they have agreed on
        prefixes: the token sequence of each hypothesis
        scores: of each, relative to the best
        times: of each, since the root
        offset: score of the best
        frames: number of frames so far
        faulty: whether the model gave a weight that is NaN or infinitely large; the rest then means nothing
        watch: called after every frame, for those who want to see more than what the beam comes to in the end
    """

    root: Prefix
    prefixes: list[Prefix]
    scores: list[float] = field(default_factory=lambda: [0.0])
    times: list[Times] = field(default_factory=lambda: [None])
    offset: float = 0.0
    frames: int = 0
    faulty: bool = False
    watch: Callable[["Beam"], None] | None = None

    def settle(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Take the tokens that all hypotheses agree on out of the beam, which then begins after them.

        Returns:
            pairs of token and frame: of the tokens taken out, and of those that follow them in the best hypothesis
        """
        if not self.prefixes:
            return [], []
        paths = [prefix.path() for prefix in self.prefixes]
        settled = 0
        for prefixes in zip(*paths, strict=False):
            if any(prefix is not prefixes[0] for prefix in prefixes):
                break
            settled += 1
        best = [(prefix.token, time) for prefix, time in zip(paths[0], unrolled(self.times[0]), strict=True)]
        if settled:
            self.root = paths[0][settled - 1]
            self.root.parent = None
            self.times = [_rolled(unrolled(times)[settled:]) for times in self.times]
        return best[:settled], best[settled:]

    def follow(self, finished: "Finished", order: list[int]) -> None:
        """Go on to the next frame with those of the finished hypotheses that `order` names, best first."""
        self.prefixes = [finished.prefixes[place] for place in order]
        self.times = [finished.times[place] for place in order]
        self.stay([finished.scores[place] for place in order])

    def stay(self, scores: list[float]) -> None:
        """Go on to the next frame with the same hypotheses, whose scores after this one are given, best first."""
        self.frames += 1
        top = scores[0] if scores else 0.0
        self.scores = [score - top for score in scores]
        self.offset += top
        if self.watch is not None:
            self.watch(self)

    def size(self) -> int:
        """Number of prefixes that can be reached from the root: what a stream keeps for as long as it runs."""
        waiting, count = [self.root], 0
        while waiting:
            count += 1
            waiting += waiting.pop().extensions.values()
        return count


@dataclass(slots=True)
class Finished:
    """The hypotheses of one utterance that have taken the frame's blank, in the order of their rounds and slots.

    Attributes:
        scores: log-sums over their alignments
        ranks: the same in single precision, as they are compared
        prefixes: their tokens
        times: how the best alignment went
    """

    scores: list[float] = field(default_factory=list)
    ranks: list[float] = field(default_factory=list)
    prefixes: list[Prefix] = field(default_factory=list)
    times: list[Times] = field(default_factory=list)

    def add(self, score: float, rank: float, prefix: Prefix, times: Times) -> None:
        """One more hypothesis."""
        self.scores.append(score)
        self.ranks.append(rank)
        self.prefixes.append(prefix)
        self.times.append(times)

    def best(self, beam: int) -> list[int]:
        """The places of the `beam` best, of equal ones the first."""
        return sorted(range(len(self.ranks)), key=self.ranks.__getitem__, reverse=True)[:beam]

    def threshold(self, beam: int) -> float:
        """What a score has to exceed to be among the `beam` best; -inf if there are fewer."""
        if len(self.ranks) <= beam:
            return min(self.ranks) if len(self.ranks) == beam else -math.inf
        return sorted(self.ranks, reverse=True)[beam - 1]


@dataclass(slots=True)
class Round:
    """n hypotheses of all utterances that have emitted the same number of tokens in this frame.

    Those of one utterance stand together, best first; `ends[b]` is where those of utterance b end.

    Attributes:
        scores: [n] log-sums over their alignments before this frame's blank
        prefixes: their tokens
        times: how their best alignments went
        ends: one number per utterance
    """

    scores: "Tensor"
    prefixes: list[Prefix]
    times: list[Times]
    ends: list[int]

    def owners(self) -> list[int]:
        """The utterance of each hypothesis."""
        starts = [0, *self.ends]
        return [b for b, end in enumerate(self.ends) for _ in range(starts[b], end)]


def unrolled(times: Times) -> list[int]:
    """The frames as a list, first one first."""
    backwards = []
    while times is not None:
        time, times = times
        backwards.append(time)
    return backwards[::-1]


def _rolled(frames: list[int]) -> Times:
    """The opposite of `unrolled`."""
    times: Times = None
    for frame in frames:
        times = (frame, times)
    return times


def nbest_of(beams: list[Beam], scores: list[list[float]]) -> NBest:
    """The hypotheses of beams with their scores; where there is none, the empty one with score -inf."""
    return NBest(
        tokens=[[prefix.tokens() for prefix in beam.prefixes] or [[]] for beam in beams],
        scores=[own or [-math.inf] for own in scores],
        times=[[unrolled(times) for times in beam.times] or [[]] for beam in beams],
    )


def check_faulty(faulty: list[bool]) -> None:
    """Raise `NotFiniteError`, a ValueError, if the model was at fault for any of the utterances."""
    utterances = [utterance for utterance, is_faulty in enumerate(faulty) if is_faulty]
    if utterances:
        raise NotFiniteError(
            f"the model gives weights that are NaN or infinitely large for utterances {utterances}", utterances
        )


def check_frames(encoder_out: "Tensor", frame_lengths: "Tensor") -> list[int]:
    """The lengths as integers, or a ValueError that says what does not fit. Synchronises with the device."""
    if encoder_out.dim() != 3:
        raise ValueError(f"encoder_out must be [B, T, D]; its shape is {list(encoder_out.shape)}")
    batch, frames = encoder_out.shape[:2]
    if frame_lengths.shape != (batch,) or frame_lengths.dtype.is_floating_point:
        raise ValueError(
            f"frame_lengths must be integers [{batch}] to go with encoder_out {list(encoder_out.shape)}; "
            f"it is {frame_lengths.dtype} of shape {list(frame_lengths.shape)}"
        )
    lengths = frame_lengths.tolist()
    for utterance, length in enumerate(lengths):
        if not 0 <= length <= frames:
            raise ValueError(f"frame_lengths[{utterance}] is {length}, but encoder_out has {frames} frames")
    return lengths
