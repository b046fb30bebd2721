"""Steadiness and delays of whole test sets, and of two systems on the same utterances.

What is measured of an utterance is defined in `transducer_gn.recognition.stability`. True ends of words come from the
corpus where it has alignments. Elsewhere the references are aligned by a system, that of the baseline where there is
one: a word ends when its last token is expected over all alignments.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from transducer_gn.config import SHOW_ALL, DisplayConfig
from transducer_gn.evaluation.bootstrap import (
    Difference,
    Interval,
    quantile_difference,
    quantile_interval,
    ratio_interval,
    ratios_difference,
)
from transducer_gn.evaluation.latency import UtteranceTimes
from transducer_gn.recognition.display_policy import present
from transducer_gn.recognition.stability import Stability, Time, delays, display_times, final_delay, stability
from transducer_gn.recognition.transcript import WORD_START

Utterances = Sequence[UtteranceTimes]


@dataclass(frozen=True)
class LiveText:
    """What is measured of one utterance's text; delays are in milliseconds, and None for words that end up wrong.

    Attributes:
        stability: how steady it was
        shown: delay of each word of the reference when it was first shown
        settled: the same, from when on it stayed
        final: delay of the final text
    """

    stability: Stability
    shown: list[Time]
    settled: list[Time]
    final: float


# Numerator and denominator of each ratio.
RATIOS: dict[str, tuple[Callable[[Stability], float], Callable[[Stability], float]]] = {
    "unstable_partial_word_ratio": (lambda s: s.unstable, lambda s: s.words),
    "normalised_erasure": (lambda s: s.erased, lambda s: s.words),
    "revisions_per_word": (lambda s: s.revisions, lambda s: s.words),
    "words_back": (lambda s: sum(s.words_back), lambda s: s.revisions),
    "seconds_back": (lambda s: sum(s.seconds_back), lambda s: s.revisions),
}
SHARES = {"p50": 0.5, "p90": 0.9}
DELAYS = ("shown", "settled")


def was_live(utterances: Utterances) -> bool:
    """Whether there is a history of every utterance."""
    return bool(utterances) and all(utterance.history for utterance in utterances)


def is_aligned(utterances: Utterances) -> bool:
    """Whether the corpus says when words end."""
    return all(utterance.ends for utterance in utterances if utterance.text)


def live_texts(utterances: Utterances, aligner: Utterances, display: DisplayConfig = SHOW_ALL) -> list[LiveText]:
    """What is measured of each utterance.

    Args:
        utterances: with their histories
        aligner: the same utterances under the system that aligns those without true ends
        display: what to show of the texts
    """
    found = []
    for utterance, aligned in zip(utterances, aligner, strict=True):
        ends: Sequence[Time] = utterance.ends or expected_ends(aligned, len(utterance.text))
        history = present(utterance.history, display)
        times = display_times(utterance.text, history)
        shown, settled = ([None if delay is None else 1000 * delay for delay in delays(own, ends)] for own in times)
        final = 1000 * final_delay(history, utterance.duration)
        found.append(LiveText(stability(history), shown, settled, final))
    return found


def expected_ends(utterance: UtteranceTimes, words: int) -> list[Time]:
    """When the words of a reference end if a word ends when its last token is expected."""
    ends: list[Time] = []
    for piece, time in zip(utterance.tokens, utterance.emitted, strict=True):
        if piece.startswith(WORD_START) or not ends:
            ends.append(None)
        ends[-1] = time
    # A word that is spelt with unknown pieces may have no start of its own.
    return ends if len(ends) == words else [None] * words


def summarise(
    utterances: Utterances,
    aligner: Utterances,
    display: DisplayConfig = SHOW_ALL,
    names: Collection[str] | None = None,
) -> dict[str, Interval]:
    """Measures of a set by name, all of them or those of the given names; see `live_texts`.

    Those of the final text depend on the machine.
    """
    texts = live_texts(utterances, aligner, display)
    made: dict[str, Callable[[], Interval]] = {name: partial(_ratio, texts, name) for name in RATIOS}
    finals = [[text.final] for text in texts]
    for kind in (*DELAYS, "final"):
        values = finals if kind == "final" else [[x for x in getattr(text, kind) if x is not None] for text in texts]
        made |= {f"{kind}_{name}_ms": partial(quantile_interval, values, share) for name, share in SHARES.items()}
    return {name: make() for name, make in made.items() if names is None or name in names}


def median_settled(
    utterances: Utterances, aligner: Utterances, choices: Mapping[str, Sequence[Sequence[bool]]]
) -> dict[str, Interval]:
    """The median delay in ms until words last changed, by the names of choices of their tokens; see `live_texts`."""
    texts, found = live_texts(utterances, aligner), {}
    for name, choice in choices.items():
        values = [
            [
                delay
                for delay, chosen in zip(text.settled, chosen_words(u, own), strict=True)
                if chosen and delay is not None
            ]
            for text, u, own in zip(texts, utterances, choice, strict=True)
        ]
        found[name] = quantile_interval(values, SHARES["p50"])
    return found


def chosen_words(utterance: UtteranceTimes, tokens: Sequence[bool]) -> list[bool]:
    """For each word of a reference whether its first token is chosen."""
    starts = [piece.startswith(WORD_START) or number == 0 for number, piece in enumerate(utterance.tokens)]
    found = [chosen for chosen, is_start in zip(tokens, starts, strict=True) if is_start]
    # As in `expected_ends`: where words are not told apart by their pieces, only all of them can be chosen.
    return found if len(found) == len(utterance.text) else [all(tokens)] * len(utterance.text)


def compare_stability(first: Utterances, second: Utterances) -> dict[str, Difference]:
    """Paired tests of all measures but that of the final text; none if a system was not run live.

    Where the corpus has no alignments, the first system's are taken for both. Words are those that both get right.
    """
    if not was_live(first) or not was_live(second):
        return {}
    sides = live_texts(first, first), live_texts(second, first)
    result = {name: ratios_difference(_counts(sides[0], name), _counts(sides[1], name)) for name in RATIOS}
    for kind in DELAYS:
        pairs = [
            [(x, y) for x, y in zip(getattr(a, kind), getattr(b, kind), strict=True) if x is not None and y is not None]
            for a, b in zip(*sides, strict=True)
        ]
        ours, theirs = ([[pair[side] for pair in row] for row in pairs] for side in (0, 1))
        result |= {f"{kind}_{name}_ms": quantile_difference(ours, theirs, share) for name, share in SHARES.items()}
    return result


def _ratio(texts: Sequence[LiveText], name: str) -> Interval:
    """A ratio over all texts."""
    return ratio_interval(*_counts(texts, name))


def _counts(texts: Sequence[LiveText], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Numerators [n] and denominators [n] of a ratio."""
    numerator, denominator = (
        np.array([count(text.stability) for text in texts], dtype=float) for count in RATIOS[name]
    )
    return numerator, denominator
