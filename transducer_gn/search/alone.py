"""The beam search for one utterance by itself, as a live recogniser has it: the rules of `transducer_gn.search.beam`.

There is little to multiply for one utterance, so that time goes to everything else. Scores are numbers of Python, and
tensors are asked for no more than products, log-sums and the best of V labels. And at most frames no extension is
promising enough: all hypotheses take the blank, and the predictor does not move. So the joiner weighs a prefix at a few
frames in one call, from the first that asks for it on: as a rule the one at which its last token was emitted, and then
most of the beam has what it needs up to the next token. With many utterances at once there is enough to multiply at
every single frame.
"""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import torch
from torch import Tensor

from transducer_gn.common.units import BLANK
from transducer_gn.search.hypotheses import Beam, Finished, Times
from transducer_gn.search.prefix import Prefix
from transducer_gn.search.prefixes import PrefixStore, SearchedJoiner
from transducer_gn.search.rules import SearchRules

# Frames, and points of hypotheses at them, that are weighed in one call. About every fourth frame has a token.
WINDOW = 5
WINDOW_POINTS = 32


# What is asked of a prefix at a frame: raw weights of the blank and of the best token, and the log-sum of all weights,
# NaN if one of them is NaN or infinitely large or all are -inf.
Point = tuple[float, float, float]
# Points of several prefixes at several frames; where that of a prefix at frame 0 would stand among them; and the raw
# weights [n, V] that they are from.
Weighed = tuple[list[Point], int, Tensor]
# (-promise, row of the hypothesis, token, its raw weight): the most promising come first, and ties as they should.
Extension = tuple[float, int, int, float]


class Outlook:
    """The points of prefixes at frames to come, as far as anybody has asked for them.

    Args:
        joiner: weighs points
        store: of the prefixes
        frames: [T, J]
    """

    def __init__(self, joiner: SearchedJoiner, store: PrefixStore, frames: Tensor) -> None:
        self._joiner = joiner
        self._store = store
        self._frames = frames
        self._weighed: dict[Prefix, Weighed] = {}
        # The frames at which what was weighed comes to its end, and for which prefixes.
        self._ends: dict[int, list[Prefix]] = {}

    def at(self, frame: int, prefixes: Sequence[Prefix]) -> list[Point]:
        """The points of prefixes, which have rows in the store, at a frame that is no earlier than those before."""
        weighed = self._weighed
        for prefix in self._ends.pop(frame, ()):
            del weighed[prefix]
        new = [prefix for prefix in prefixes if prefix not in weighed]
        if new:
            self._weigh(new, frame)
        return [points[start + frame] for points, start, _ in map(weighed.__getitem__, prefixes)]

    def logits(self, frame: int, prefixes: Sequence[Prefix]) -> Tensor:
        """Raw weights [n, V] of prefixes whose points at a frame were asked for."""
        found = map(self._weighed.__getitem__, prefixes)
        return torch.stack([logits.select(0, start + frame) for _, start, logits in found])

    def _weigh(self, prefixes: list[Prefix], frame: int) -> None:
        """Find the points of prefixes at a frame and at a few after it."""
        count = max(1, min(WINDOW, WINDOW_POINTS // len(prefixes), len(self._frames) - frame))
        frames = self._frames[frame : frame + count]
        logits = self._joiner(frames, self._store.gather(prefixes)[:, None]).flatten(0, 1)
        blanks, tokens = logits.select(1, BLANK).tolist(), logits[:, BLANK + 1 :].amax(1).tolist()
        # The largest of all weights as a share of their sum, at least 1 / V, has a logarithm that is quickly taken.
        shares = logits.softmax(1).amax(1).tolist()
        points = [
            (blank, token, (token if token > blank else blank) - log(share))
            for blank, token, share in zip(blanks, tokens, shares, strict=True)
        ]
        for number, prefix in enumerate(prefixes):
            self._weighed[prefix] = points, number * count - frame, logits
        self._ends.setdefault(frame + count, []).extend(prefixes)


@dataclass(slots=True)
class Hypotheses:
    """The hypotheses of a round: their scores before this frame's blank, tokens, and how their best alignments went."""

    scores: list[float]
    prefixes: list[Prefix]
    times: list[Times]


class SearchAlone:
    """Takes the beam of one utterance from frame to frame.

    Args:
        joiner: weighs points
        store: of the prefixes
        rules: of the search
    """

    def __init__(self, joiner: SearchedJoiner, store: PrefixStore, rules: SearchRules) -> None:
        self._joiner = joiner
        self._store = store
        self._beam = rules.beam
        self._alpha = rules.alpha
        self._most = rules.max_tokens_per_frame

    def advance(self, beam: Beam, frames: Tensor) -> None:
        """Take a beam over frames [T, J]."""
        outlook = Outlook(self._joiner, self._store, frames)
        for frame in range(frames.shape[0]):
            self._store.make_room()
            points = outlook.at(frame, beam.prefixes)
            if not self._pass(beam, points):
                self._take(beam, outlook, frame, points)

    def _pass(self, beam: Beam, points: list[Point]) -> bool:
        """Take a beam over a frame if nothing can be emitted there, and say whether it was so."""
        # With fewer hypotheses every extension is promising enough.
        if len(points) < self._beam:
            return False
        after = self._after_blank(beam.scores, points)
        # Strange weights, of which there may be any number, are looked at in full.
        if not math.isfinite(sum(after)):
            return False
        ranks = _single(after)
        if max(self._promises(beam.scores, points)) > min(ranks):
            return False
        if ranks == sorted(ranks, reverse=True):
            beam.stay(after)
        else:
            finished = Finished(after, ranks, beam.prefixes, beam.times)
            beam.follow(finished, finished.best(self._beam))
        return True

    def _take(self, beam: Beam, outlook: Outlook, frame: int, points: list[Point]) -> None:
        """Take a beam, whose hypotheses have the given points, over a frame at which tokens may be emitted."""
        hypotheses, finished = Hypotheses(beam.scores, beam.prefixes, beam.times), Finished()
        for step in range(self._most + 1):
            points = _checked(beam, points)
            self._finish(hypotheses, points, finished)
            if step == self._most:
                break
            chosen = self._choose(hypotheses, points, finished.threshold(self._beam), outlook, frame)
            if not chosen:
                break
            hypotheses = self._extend(beam, hypotheses, points, chosen)
            points = outlook.at(frame, hypotheses.prefixes)
        beam.follow(finished, finished.best(self._beam))

    def _after_blank(self, scores: list[float], points: list[Point]) -> list[float]:
        """The scores of hypotheses after their blanks."""
        alpha = self._alpha
        return [score + blank - alpha * total for score, (blank, _, total) in zip(scores, points, strict=True)]

    def _promises(self, scores: list[float], points: list[Point]) -> list[float]:
        """The promise of the best extension of each hypothesis, as it is compared."""
        share = 1 - 2 * self._alpha
        return _single(
            [token + (score + share * total) for score, (_, token, total) in zip(scores, points, strict=True)]
        )

    def _finish(self, hypotheses: Hypotheses, points: list[Point], finished: Finished) -> None:
        """Let hypotheses take their blanks; those that an earlier round has finished too are merged with it."""
        after = self._after_blank(hypotheses.scores, points)
        ranks = _single(after)
        if not finished.prefixes and all(rank > -math.inf for rank in ranks):
            finished.scores, finished.ranks = after, ranks
            finished.prefixes, finished.times = list(hypotheses.prefixes), list(hypotheses.times)
            return
        places = {prefix: place for place, prefix in enumerate(finished.prefixes)}
        for score, rank, prefix, times in zip(after, ranks, hypotheses.prefixes, hypotheses.times, strict=True):
            if not rank > -math.inf:
                continue
            place = places.get(prefix)
            if place is None:
                finished.add(score, rank, prefix, times)
                continue
            if rank > finished.ranks[place]:
                finished.times[place] = times
            finished.scores[place] = _log_add(finished.scores[place], score)
            (finished.ranks[place],) = _single([finished.scores[place]])

    def _choose(
        self, hypotheses: Hypotheses, points: list[Point], threshold: float, outlook: Outlook, frame: int
    ) -> list[Extension]:
        """The most promising extensions, best first."""
        promises = self._promises(hypotheses.scores, points)
        rows = [row for row, promise in enumerate(promises) if promise > threshold]
        if not rows:
            return []
        logits = outlook.logits(frame, [hypotheses.prefixes[row] for row in rows])[:, BLANK + 1 :]
        weights, tokens = (part.tolist() for part in logits.topk(min(self._beam + 1, logits.shape[1])))
        share = 1 - 2 * self._alpha
        found: list[Extension] = []
        for place, row in enumerate(rows):
            offset = hypotheses.scores[row] + share * points[row][2]
            # What does not exceed the threshold as it is does not do so in single precision.
            arcs = zip(weights[place], tokens[place], strict=True)
            own = [(weight + offset, row, token + 1, weight) for weight, token in arcs if weight + offset > threshold]
            if len(own) > self._beam and _single([own[-1][0]]) == _single([own[-2][0]]):
                # Which of equal promises come first is left open by topk, but not by the rules.
                own = [(weight + offset, row, token + 1, weight) for token, weight in enumerate(logits[place].tolist())]
            found += own
        ranks = _single([promise for promise, _, _, _ in found])
        ordered = sorted((-rank, *arc[1:]) for rank, arc in zip(ranks, found, strict=True) if rank > threshold)
        return ordered[: self._beam]

    def _extend(self, beam: Beam, hypotheses: Hypotheses, points: list[Point], chosen: list[Extension]) -> Hypotheses:
        """The next round, with its prefixes in the store."""
        scores = [hypotheses.scores[row] + (weight - self._alpha * points[row][2]) for _, row, _, weight in chosen]
        prefixes = [hypotheses.prefixes[row].extend(token) for _, row, token, _ in chosen]
        self._store.read(prefixes)
        return Hypotheses(scores, prefixes, [(beam.frames, hypotheses.times[row]) for _, row, _, _ in chosen])


def _checked(beam: Beam, points: list[Point]) -> list[Point]:
    """Points of which those without any weight count as normalised; marks a beam at which a weight is no number."""
    if not math.isnan(sum(log_sum for _, _, log_sum in points)):
        return points
    checked = [(blank, token, 0.0 if blank == token == -math.inf else log_sum) for blank, token, log_sum in points]
    beam.faulty |= any(math.isnan(log_sum) for _, _, log_sum in checked)
    return checked


def _single(values: list[float]) -> list[float]:
    """Scores as they are compared, in single precision."""
    return array("f", values).tolist()


def _log_add(first: float, second: float) -> float:
    """Log of the sum of two numbers, of which both are positive, given by their logs."""
    high, low = (first, second) if first > second else (second, first)
    return high + math.log1p(math.exp(low - high))
