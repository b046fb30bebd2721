"""Searching with an exported system, in numpy: the rules of `transducer_gn.search`, one utterance at a time.

`transducer_gn.search.beam` draws what happens at a frame. Weights come interpolated out of the joiner's graph and are
added up as they are: they are no probabilities, and nothing here may normalise them.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from transducer_gn.common.units import BLANK
from transducer_gn.runtime.networks import Networks, State
from transducer_gn.search.hypotheses import Beam, Finished, Times
from transducer_gn.search.prefix import NO_ROW, Prefix

# Prefixes of which the predictor's output is kept, for each hypothesis of the beam.
KEPT_PER_HYPOTHESIS = 32


class Search(Protocol):
    """Takes the beam of an utterance from frame to frame."""

    def start(self) -> Beam:
        """The beam of the empty sequence alone."""

    def advance(self, beam: Beam, frame: np.ndarray) -> None:
        """Take a beam over one projected frame [J]."""


@dataclass(frozen=True)
class Read:
    """What the predictor said about a prefix: a projected output [1, J], and the state after its last token."""

    output: np.ndarray
    state: State


class Prefixes:
    """What the predictor said about the prefixes of one utterance; the oldest are forgotten, and read again."""

    def __init__(self, networks: Networks, most: int) -> None:
        self._networks = networks
        self._most = most
        self._read: dict[Prefix, Read] = {}

    def root(self) -> Prefix:
        """A new empty prefix."""
        root = Prefix(None, BLANK)
        self._keep(root, Read(*self._networks.initial_prefix()))
        return root

    def outputs(self, prefixes: list[Prefix]) -> np.ndarray:
        """Projected outputs [n, J]."""
        return np.concatenate([self._read[prefix].output for prefix in prefixes])

    def read(self, prefixes: list[Prefix]) -> None:
        """Let the predictor read the last tokens of those that it has not read; it has read their parents."""
        new = [prefix for prefix in prefixes if prefix.row == NO_ROW]
        if not new:
            return
        states = [self._read[prefix.parent].state for prefix in new if prefix.parent is not None]
        state = tuple(np.concatenate(parts) for parts in zip(*states, strict=True))
        outputs, after = self._networks.read(np.array([prefix.token for prefix in new]), state)
        for row, prefix in enumerate(new):
            self._keep(prefix, Read(outputs[row : row + 1], tuple(part[row : row + 1] for part in after)))

    def forget(self, held: list[Prefix]) -> None:
        """Forget the oldest of too many, but none of those that are held. To be called between frames."""
        needed = set(held)
        for prefix in list(self._read)[: max(0, len(self._read) - self._most)]:
            if prefix not in needed:
                del self._read[prefix]
                prefix.row = NO_ROW
                prefix.forget()

    def _keep(self, prefix: Prefix, read: Read) -> None:
        self._read[prefix] = read
        prefix.row = 0


class BeamSearch:
    """The beam search; see `transducer_gn.search.beam`. One for each utterance.

    Args:
        networks: predictor and joiner
        beam: K, hypotheses kept
        max_tokens_per_frame: S
    """

    def __init__(self, networks: Networks, beam: int, max_tokens_per_frame: int) -> None:
        self.beam = beam
        self.max_tokens_per_frame = max_tokens_per_frame
        self._networks = networks
        self._prefixes = Prefixes(networks, KEPT_PER_HYPOTHESIS * beam)

    def start(self) -> Beam:
        """See `Search.start`."""
        root = self._prefixes.root()
        return Beam(root, [root])

    def advance(self, beam: Beam, frame: np.ndarray) -> None:
        """See `Search.advance`."""
        self._prefixes.forget(beam.prefixes)
        scores, prefixes, times = np.array(beam.scores, dtype=np.float32), beam.prefixes, beam.times
        finished = Finished()
        for step in range(self.max_tokens_per_frame + 1):
            if not prefixes:
                break
            weights, log_sums = self._networks.weigh(frame, self._prefixes.outputs(prefixes))
            beam.faulty |= bool(np.isnan(log_sums).any() or (log_sums == np.inf).any())
            finish(finished, (scores + weights[:, BLANK]).tolist(), prefixes, times)
            if step == self.max_tokens_per_frame or beam.faulty:
                break
            chosen = self._choose(scores, weights, log_sums, finished.threshold(self.beam))
            scores = np.array([scores[row] + weights[row, token] for row, token in chosen], dtype=np.float32)
            times = [(beam.frames, times[row]) for row, _ in chosen]
            prefixes = [prefixes[row].extend(token) for row, token in chosen]
            self._prefixes.read(prefixes)
        beam.follow(finished, finished.best(self.beam))

    def _choose(
        self, scores: np.ndarray, weights: np.ndarray, log_sums: np.ndarray, threshold: float
    ) -> list[tuple[int, int]]:
        """Row and token of the extensions of highest promise that exceeds a threshold, of equal ones the first."""
        local = np.where(log_sums > -np.inf, log_sums, 0)
        offsets = scores + np.float32(1 - self._networks.layout.alpha) * local
        promises = weights[:, 1:] + offsets[:, None]
        rows, tokens = np.nonzero(promises > threshold)
        order = np.argsort(-promises[rows, tokens], kind="stable")[: self.beam]
        return [(int(rows[place]), int(tokens[place]) + 1) for place in order]


def finish(finished: Finished, scores: list[float], prefixes: list[Prefix], times: list[Times]) -> None:
    """Add hypotheses after their blanks to those that have finished a frame; those with the same tokens are merged."""
    places = {prefix: place for place, prefix in enumerate(finished.prefixes)}
    for score, prefix, own_times in zip(scores, prefixes, times, strict=True):
        if not score > -math.inf:
            continue
        place = places.get(prefix)
        if place is None:
            finished.scores.append(score)
            finished.ranks.append(score)
            finished.prefixes.append(prefix)
            finished.times.append(own_times)
            continue
        if score > finished.ranks[place]:
            finished.times[place] = own_times
        merged = float(np.logaddexp(np.float32(finished.scores[place]), np.float32(score)))
        finished.scores[place] = finished.ranks[place] = merged


class GreedySearch:
    """The best label at every point, as a beam of one hypothesis; see `transducer_gn.search.greedy`."""

    def __init__(self, networks: Networks, max_tokens_per_frame: int) -> None:
        self.max_tokens_per_frame = max_tokens_per_frame
        self._networks = networks
        self._last = Read(*networks.initial_prefix())

    def start(self) -> Beam:
        """See `Search.start`."""
        root = Prefix(None, BLANK)
        return Beam(root, [root])

    def advance(self, beam: Beam, frame: np.ndarray) -> None:
        """See `Search.advance`."""
        for _ in range(self.max_tokens_per_frame):
            weights, _ = self._networks.weigh(frame, self._last.output)
            label = int(weights[0].argmax())
            # Also catches NaN, which counts as the largest weight.
            beam.faulty |= not weights[0, label] < np.inf
            if label == BLANK or beam.faulty:
                break
            self._last = Read(*self._networks.read(np.array([label]), self._last.state))
            beam.prefixes = [beam.prefixes[0].extend(label)]
            beam.times = [(beam.frames, beam.times[0])]
        beam.frames += 1
