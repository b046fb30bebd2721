"""Intervals and tests by drawing utterances anew, with replacement.

Most statistics are ratios of sums over utterances: a word error rate is errors over words, a mean emission time is
seconds over tokens. Others are quantiles of the values of all utterances. Words of an utterance stand or fall together,
so utterances are drawn and not words (and all of a unit where they share their sound).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

REPLICATIONS = 10_000
# Utterances times replications that are drawn at once.
LARGEST_DRAW = 2_000_000
# Quantiles take a look at every value for every draw.
QUANTILE_REPLICATIONS = 2_000

# Values of each utterance, any number.
Values = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> "Interval":
        """The same in another unit."""
        return Interval(self.value * factor, self.low * factor, self.high * factor)


@dataclass(frozen=True)
class Difference:
    """How far B lies from A on the same utterances.

    Attributes:
        first: the value of A
        second: the value of B
        change: second - first, with its interval
        p_value: two-sided; how surprising such a change would be if there were none
    """

    first: float
    second: float
    change: Interval
    p_value: float

    @property
    def relative(self) -> float:
        """Change as a share of the first value, in per cent; NaN where that is 0."""
        return 100 * self.change.value / self.first if self.first else float("nan")


def ratio_interval(numerators: np.ndarray, denominators: np.ndarray, seed: int = 0) -> Interval:
    """The ratio of sums [n] over [n], with its interval; all NaN where the denominators are 0."""
    value = _ratios(numerators.sum(), denominators.sum())
    return _interval(float(value), _draw_ratios(numerators, denominators, seed))


def ratio_difference(first: np.ndarray, second: np.ndarray, denominators: np.ndarray, seed: int = 0) -> Difference:
    """Compare two systems by their numerators [n] on the same utterances with the same denominators [n].

    Both are always judged on the same draw of utterances: an utterance that is hard for both says nothing.
    """
    total = denominators.sum()
    values = float(_ratios(first.sum(), total)), float(_ratios(second.sum(), total))
    # The difference of the ratios is the ratio of the differences, since denominators are the same.
    return _difference(values, _draw_ratios(second - first, denominators, seed))


def ratios_difference(
    first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray], seed: int = 0
) -> Difference:
    """The same where each system has denominators of its own: pairs of numerators [n] and denominators [n]."""
    values = [float(_ratios(numerators.sum(), denominators.sum())) for numerators, denominators in (first, second)]
    # The same seed draws the same utterances for both.
    drawn = _draw_ratios(*second, seed) - _draw_ratios(*first, seed)
    return _difference((values[0], values[1]), drawn)


def quantile_interval(values: Values, share: float, seed: int = 0) -> Interval:
    """The smallest value that at least a share of all values do not exceed, with its interval; NaN of no values."""
    return _interval(quantile(values, share), _draw_quantiles(values, share, seed))


def quantile_difference(first: Values, second: Values, share: float, seed: int = 0) -> Difference:
    """Compare the quantiles of two systems on the same draws of utterances."""
    values = quantile(first, share), quantile(second, share)
    return _difference(values, _draw_quantiles(second, share, seed) - _draw_quantiles(first, share, seed))


def quantile(values: Values, share: float) -> float:
    """The smallest value that at least a share of all values do not exceed; NaN of no values."""
    everything = np.sort(np.array([value for own in values for value in own], dtype=float))
    return float(everything[max(0, math.ceil(share * len(everything)) - 1)]) if len(everything) else math.nan


def _interval(value: float, drawn: np.ndarray) -> Interval:
    """A value with the interval that draws of it give."""
    if not np.isfinite(drawn).any():
        return Interval(value, float("nan"), float("nan"))
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return Interval(value, float(low), float(high))


def _difference(values: tuple[float, float], drawn: np.ndarray) -> Difference:
    """Two values, and what draws say about their difference."""
    drawn = drawn[np.isfinite(drawn)]
    if len(drawn) == 0:
        nothing = float("nan")
        return Difference(*values, Interval(nothing, nothing, nothing), nothing)
    low, high = np.quantile(drawn, [0.025, 0.975])
    tail = min((drawn <= 0).sum(), (drawn >= 0).sum())
    # One more, as the data themselves are a draw: a p-value is never 0.
    p_value = min(1.0, 2 * (tail + 1) / (len(drawn) + 1))
    return Difference(*values, Interval(values[1] - values[0], float(low), float(high)), float(p_value))


def _draw_quantiles(values: Values, share: float, seed: int) -> np.ndarray:
    """Quantiles over `QUANTILE_REPLICATIONS` draws of utterances; NaN for draws without a value."""
    owners = np.array([owner for owner, own in enumerate(values) for _ in own], dtype=int)
    flat = np.array([value for own in values for value in own], dtype=float)
    if len(flat) == 0:
        return np.full(QUANTILE_REPLICATIONS, np.nan)
    order = np.argsort(flat, kind="stable")
    owners, flat = owners[order], flat[order]
    generator = np.random.default_rng(seed)
    drawn = np.full(QUANTILE_REPLICATIONS, np.nan)
    for number in range(QUANTILE_REPLICATIONS):
        times = np.bincount(generator.integers(len(values), size=len(values)), minlength=len(values))
        counted = times[owners].cumsum()
        if counted[-1]:
            drawn[number] = flat[np.searchsorted(counted, max(1, math.ceil(share * counted[-1])))]
    return drawn


def _draw_ratios(numerators: np.ndarray, denominators: np.ndarray, seed: int) -> np.ndarray:
    """Ratios over `REPLICATIONS` draws of utterances; NaN for draws without a denominator."""
    count = len(denominators)
    if count == 0:
        return np.full(REPLICATIONS, np.nan)
    generator = np.random.default_rng(seed)
    at_once = max(1, LARGEST_DRAW // count)
    parts = []
    for start in range(0, REPLICATIONS, at_once):
        chosen = generator.integers(count, size=(min(at_once, REPLICATIONS - start), count))
        parts.append(_ratios(numerators[chosen].sum(1), denominators[chosen].sum(1)))
    return np.concatenate(parts)


def _ratios(numerators: np.ndarray, denominators: np.ndarray) -> np.ndarray:
    """Element by element; NaN where a denominator is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(np.asarray(denominators) > 0, numerators / np.asarray(denominators, dtype=float), np.nan)
