"""The beam search for one utterance by itself, as a live recogniser has it: the rules of `transducer_gn.search.beam`.

There is little to multiply for one utterance, so that time goes to everything else. Scores are numbers of Python, and
tensors are asked for no more than products, log-sums and the best of V labels. And at most frames no extension is
promising enough: all hypotheses take the blank, and the predictor does not move. So the joiner weighs the points of a
few frames in one call, which is in vain only for those after the next token. With many utterances at once there is
enough to multiply at every single frame.
"""

import math
from array import array
from dataclasses import dataclass

import torch
from torch import Tensor

from transducer_gn.common.units import BLANK
from transducer_gn.search.hypotheses import Beam, Finished, Times
from transducer_gn.search.prefix import Prefix
from transducer_gn.search.prefixes import PrefixStore, SearchedJoiner
from transducer_gn.search.rounds import best_extensions
from transducer_gn.search.rules import SearchRules

# Frames, and points of hypotheses at them, that are weighed in one call.
WINDOW = 3
WINDOW_POINTS = 24


@dataclass(slots=True)
class Points:
    """The points of n hypotheses at one frame.

    Attributes:
        logits: [n, V] raw weights of all arcs
        log_sums: n times what they sum to
        blanks: n raw weights of blanks
        tokens: n times the largest raw weight of a token
    """

    logits: Tensor
    log_sums: list[float]
    blanks: list[float]
    tokens: list[float]

    def reordered(self, order: list[int]) -> "Points":
        """The points of hypotheses in another order."""
        if order == sorted(order):
            return self
        lists = ([values[i] for i in order] for values in (self.log_sums, self.blanks, self.tokens))
        return Points(self.logits[order], *lists)


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
        t = 0
        while t < len(frames):
            self._store.make_room()
            count = max(1, min(WINDOW, WINDOW_POINTS // max(1, len(beam.prefixes))))
            ahead = frames[t : t + count]
            points = self._points(ahead[:, None], beam.prefixes)
            order = list(range(len(beam.prefixes)))
            for frame, own in zip(ahead.unbind(), points, strict=True):
                t += 1
                slots = self._pass(beam, own, order)
                if slots is None:
                    self._take(beam, frame, own.reordered(order))
                    break
                order = [order[slot] for slot in slots]

    def _points(self, frames: Tensor, prefixes: list[Prefix]) -> list[Points]:
        """The points of prefixes at frames [W, 1, J]."""
        logits = self._joiner(frames, self._store.gather(prefixes))
        lists = (logits.logsumexp(-1), logits[:, :, BLANK], logits[:, :, 1:].amax(-1))
        return [Points(*own) for own in zip(logits.unbind(), *(part.tolist() for part in lists), strict=True)]

    def _pass(self, beam: Beam, points: Points, order: list[int]) -> list[int] | None:
        """Take a beam over a frame if nothing can be emitted there.

        Args:
            beam: before the frame
            points: of its hypotheses in another order
            order: where those of the beam are among them

        Returns:
            the slots that hypotheses had before; None if the frame is to be looked at in full
        """
        # With fewer hypotheses every extension is promising enough.
        if len(order) < self._beam:
            return None
        alpha, log_sums, blanks, tokens = self._alpha, points.log_sums, points.blanks, points.tokens
        scores = beam.scores
        after = [scores[k] + blanks[i] - alpha * log_sums[i] for k, i in enumerate(order)]
        # Strange weights, of which there may be any number, are looked at in full.
        if not math.isfinite(sum(after)):
            return None
        ranks = _single(after)
        share = 1 - 2 * alpha
        if max(_single([tokens[i] + (scores[k] + share * log_sums[i]) for k, i in enumerate(order)])) > min(ranks):
            return None
        slots = sorted(range(len(order)), key=ranks.__getitem__, reverse=True)
        beam.follow(Finished(after, ranks, beam.prefixes, beam.times), slots)
        return slots

    def _take(self, beam: Beam, frame: Tensor, points: Points) -> None:
        """Take a beam over a frame [J] at which tokens may be emitted."""
        hypotheses, finished = Hypotheses(beam.scores, beam.prefixes, beam.times), Finished()
        for step in range(self._most + 1):
            self._check(beam, points)
            self._finish(hypotheses, points, finished)
            if step == self._most:
                break
            chosen = self._choose(hypotheses, points, finished.threshold(self._beam))
            if not chosen:
                break
            hypotheses = self._extend(beam, hypotheses, points, chosen)
            (points,) = self._points(frame[None, None], hypotheses.prefixes)
        beam.follow(finished, finished.best(self._beam))

    def _check(self, beam: Beam, points: Points) -> None:
        """Mark a beam at which a weight is NaN or infinitely large; points without any weight count as normalised."""
        if not math.isfinite(sum(points.log_sums)):
            beam.faulty |= any(math.isnan(value) or value == math.inf for value in points.log_sums)
            points.log_sums = [0.0 if value == -math.inf else value for value in points.log_sums]

    def _finish(self, hypotheses: Hypotheses, points: Points, finished: Finished) -> None:
        """Let hypotheses take their blanks; those that an earlier round has finished too are merged with it."""
        after = [
            score + blank - self._alpha * log_sum
            for score, blank, log_sum in zip(hypotheses.scores, points.blanks, points.log_sums, strict=True)
        ]
        places = {prefix: place for place, prefix in enumerate(finished.prefixes)}
        for score, rank, prefix, times in zip(
            after, _single(after), hypotheses.prefixes, hypotheses.times, strict=True
        ):
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

    def _choose(self, hypotheses: Hypotheses, points: Points, threshold: float) -> list[tuple[int, int]]:
        """Row and token of the most promising extensions, best first."""
        share = 1 - 2 * self._alpha
        offsets = [score + share * log_sum for score, log_sum in zip(hypotheses.scores, points.log_sums, strict=True)]
        best = _single([weight + offset for weight, offset in zip(points.tokens, offsets, strict=True)])
        rows = [row for row, promise in enumerate(best) if promise > threshold]
        if not rows:
            return []
        offset = torch.tensor(offsets, dtype=points.logits.dtype, device=points.logits.device)
        candidates = best_extensions(points.logits, offset, rows, self._beam)
        found = sorted(candidate for own in candidates for candidate in own if -candidate[0] > threshold)
        return [(row, token) for _, row, token in found[: self._beam]]

    def _extend(self, beam: Beam, hypotheses: Hypotheses, points: Points, chosen: list[tuple[int, int]]) -> Hypotheses:
        """The next round, with its prefixes in the store."""
        vocabulary = points.logits.shape[1]
        arcs = torch.tensor([row * vocabulary + token for row, token in chosen], device=points.logits.device)
        scores = [
            hypotheses.scores[row] + (weight - self._alpha * points.log_sums[row])
            for (row, _), weight in zip(chosen, points.logits.take(arcs).tolist(), strict=True)
        ]
        prefixes = [hypotheses.prefixes[row].extend(token) for row, token in chosen]
        self._store.read(prefixes)
        return Hypotheses(scores, prefixes, [(beam.frames, hypotheses.times[row]) for row, _ in chosen])


def _single(values: list[float]) -> list[float]:
    """Scores as they are compared, in single precision."""
    return array("f", values).tolist()


def _log_add(first: float, second: float) -> float:
    """Log of the sum of two numbers, of which both are positive, given by their logs."""
    high, low = (first, second) if first > second else (second, first)
    return high + math.log1p(math.exp(low - high))
