"""Ambiguous words by distance: how many words stand between them and the word that settles them.

With a small distance a recogniser that waits a little can know; with a large one it cannot. What is measured of each
distance are the errors on ambiguous words, and when these words come out: expected emission, and when a live recogniser
first shows them and last changes them, all counted from the end of the ambiguous sound.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from transducer_gn.data.labels import group_of, time_spans
from transducer_gn.evaluation.bootstrap import Interval, ratio_interval
from transducer_gn.evaluation.latency import UtteranceTimes
from transducer_gn.evaluation.latency_results import Latency
from transducer_gn.evaluation.results import Results, measure_summary
from transducer_gn.recognition.error_rates import measure
from transducer_gn.synthetic.blends import blended_errors, blended_tokens, words_of
from transducer_gn.synthetic.lexicon import PAIRS
from transducer_gn.synthetic.sentences import AMBIGUOUS

# A report compares systems distance by distance where there are no more than these.
FEW = 2
SETTLING = {word: settling for pair in PAIRS for word, settling in zip(pair.words, pair.settling, strict=True)}


@dataclass(frozen=True)
class Delays:
    """When words come out after the end of their sound, in milliseconds; NaN where nothing is known.

    Attributes:
        median: half of the words are there by then
        late: nine of ten are
    """

    median: float
    late: float


@dataclass(frozen=True)
class AtDistance:
    """What one system makes of the ambiguous words of one distance.

    Attributes:
        distance: words between the ambiguous and the settling one; None for all distances together
        words: number of ambiguous words
        errors: on them, in per cent
        emission: expected emission of their tokens after the end of the ambiguous sound, in ms
        all_tokens: mean emission time of all tokens of these sentences, in ms from their beginning
        shown: first shown, of words that are right in the end
        settled: last changed, of the same
    """

    distance: int | None
    words: int
    errors: Interval
    emission: Interval
    all_tokens: Interval
    shown: Delays
    settled: Delays


def blend_position(words: Sequence[str], custom: Mapping[str, Any]) -> int | None:
    """Where the ambiguous word of an utterance stands; None if it has none that a later word settles."""
    if group_of(custom) != AMBIGUOUS:
        return None
    return next((n for n, word in enumerate(words) if word in custom.get("pair", ()) and word in SETTLING), None)


def distance_of(words: Sequence[str], custom: Mapping[str, Any]) -> int | None:
    """Words between the ambiguous word of an utterance and the one that settles it; None if either is not there."""
    position = blend_position(words, custom)
    if position is None or SETTLING[words[position]] not in words[position + 1 :]:
        return None
    return words[position + 1 :].index(SETTLING[words[position]])


def distances_in(utterances: Iterable[tuple[Sequence[str], Mapping[str, Any]]]) -> list[int]:
    """The distances of utterances, given by their words and what the manifest says besides; in order."""
    return sorted({n for words, custom in utterances if (n := distance_of(words, custom)) is not None})


def distance_name(distance: int) -> str:
    """What measures of one distance are called."""
    return f"{AMBIGUOUS}, distance {distance}, words"


def by_distance(results: Results, latency: Latency | None) -> list[AtDistance]:
    """Each distance that a test set has, in order, and all of them together at the end; nothing without any."""
    distances = distances_in((u.reference, u.custom) for u in results.utterances)
    chosen: list[list[int]] = [[distance] for distance in distances]
    if len(distances) > 1:
        chosen.append(distances)
    return [at_distances(results, latency, own) for own in chosen]


def at_distances(results: Results, latency: Latency | None, distances: Sequence[int]) -> AtDistance:
    """The measures of the utterances of some distances."""
    recognised = [u for u in results.utterances if distance_of(u.reference, u.custom) in distances]
    errors = measure_summary(measure(recognised, blended_errors))
    measured = [] if latency is None else latency.utterances
    timed = [u for u in measured if distance_of(own_words(u), u.custom) in distances]
    return AtDistance(
        distance=distances[0] if len(distances) == 1 else None,
        words=int(errors["words"]),
        errors=Interval(float(errors["rate"]), float(errors["low"]), float(errors["high"])),
        emission=mean_ms([blend_emissions(u) for u in timed]),
        all_tokens=mean_ms([[time for time in u.emitted if time is not None] for u in timed]),
        shown=delays(u.shown_delay for u in map(BlendTimes.of, timed)),
        settled=delays(u.settled_delay for u in map(BlendTimes.of, timed)),
    )


@dataclass(frozen=True)
class BlendTimes:
    """Seconds from the end of the ambiguous sound until its word is first shown, and last changed; None for never."""

    shown_delay: float | None
    settled_delay: float | None

    @classmethod
    def of(cls, utterance: UtteranceTimes) -> "BlendTimes":
        """Those of an utterance; None where it was not run live or the manifest has no times."""
        position, end = blend_position(own_words(utterance), utterance.custom), blend_end(utterance)
        if position is None or end is None or position >= min(len(utterance.shown), len(utterance.settled)):
            return cls(None, None)
        times = utterance.shown[position], utterance.settled[position]
        return cls(*(None if time is None else time - end for time in times))


def own_words(utterance: UtteranceTimes) -> list[str]:
    """The words of the reference, from its pieces."""
    return words_of(utterance.tokens)


def blend_end(utterance: UtteranceTimes) -> float | None:
    """When the ambiguous sound ends, in seconds; None if the manifest does not say."""
    span = time_spans(utterance.custom).get("blend")
    return None if span is None else span[1]


def blend_emissions(utterance: UtteranceTimes) -> list[float]:
    """Expected emission of the tokens of the ambiguous word, in seconds after the end of its sound."""
    end = blend_end(utterance)
    if end is None:
        return []
    both = zip(utterance.emitted, blended_tokens(utterance), strict=True)
    return [time - end for time, is_blend in both if is_blend and time is not None]


def mean_ms(times: Sequence[Sequence[float]]) -> Interval:
    """Mean over all times, given by utterance in seconds, with its interval over utterances; in milliseconds."""
    sums, counts = np.array([1000 * sum(own) for own in times]), np.array([len(own) for own in times])
    return ratio_interval(sums, counts) if counts.sum() else Interval(np.nan, np.nan, np.nan)


def delays(times: Iterable[float | None]) -> Delays:
    """Median and ninth decile of the times that there are, given in seconds."""
    known = [1000 * time for time in times if time is not None]
    if not known:
        return Delays(np.nan, np.nan)
    median, late = np.quantile(known, [0.5, 0.9])
    return Delays(float(median), float(late))
