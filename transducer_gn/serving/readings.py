"""The weight of competing readings: what the hypotheses of a beam say where they first disagree, frame by frame.

At the first word on which hypotheses differ, each of them has a word, or none yet; those that have the same word share
their weight. Under a locally normalised model these shares hardly move once they are there; a globally normalised one
may turn them round when later audio speaks for the other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from transducer_gn.common.framing import Framing
from transducer_gn.recognition.beam_text import BeamText
from transducer_gn.search.hypotheses import Beam

# Smaller shares are not worth a line on a screen.
SMALLEST_SHARE = 0.005


@dataclass(frozen=True, slots=True)
class Dispute:
    """What hypotheses say at one moment where they first disagree.

    Attributes:
        seconds: of audio up to the end of the frame
        place: how many words, settled ones included, stand before the one in dispute
        shares: of the beam's weight, by word; empty for hypotheses that have no word there yet
    """

    seconds: float
    place: int
    shares: dict[str, float]


def disputed(texts: Sequence[Sequence[str]], scores: Sequence[float]) -> tuple[int, dict[str, float]] | None:
    """Where texts first disagree, and the share of each word there by their log weights; None if they do not."""
    place = 0
    while True:
        words = [text[place] if place < len(text) else "" for text in texts]
        if any(word != words[0] for word in words):
            break
        if not words or not words[0]:
            return None
        place += 1
    top = max(scores)
    weights = [math.exp(score - top) for score in scores]
    total = sum(weights)
    shares: dict[str, float] = {}
    for word, weight in zip(words, weights, strict=True):
        shares[word] = shares.get(word, 0.0) + weight / total
    return place, {word: share for word, share in shares.items() if share >= SMALLEST_SHARE}


class ReadingsWatch:
    """Looks at a beam after every frame and keeps what it saw until it is taken.

    Attributes:
        settled: whole words before those that hypotheses are made of
    """

    def __init__(self, text: BeamText, framing: Framing) -> None:
        self._text = text
        self._frame_shift = framing.frame_shift
        self._seen: list[Dispute] = []
        self.settled = 0
        text.beam.watch = self.look

    def look(self, beam: Beam) -> None:
        """Note what the hypotheses disagree on."""
        if beam.faulty or not beam.prefixes:
            return
        texts = [self._text.spelt([prefix.token for prefix in path.path()]) for path in beam.prefixes]
        found = disputed(texts, beam.scores)
        if found is not None:
            place, shares = found
            self._seen.append(Dispute(beam.frames * self._frame_shift, self.settled + place, shares))

    def take(self) -> list[Dispute]:
        """What was seen since the last call."""
        seen, self._seen = self._seen, []
        return seen
