"""Invariant: intervals and p-values are those of the distribution that drawing utterances with replacement has."""

import kaldialign
import numpy as np
import pytest
from scipy import stats

from transducer_gn.evaluation.bootstrap import (
    REPLICATIONS,
    quantile,
    quantile_difference,
    quantile_interval,
    ratio_difference,
    ratio_interval,
    ratios_difference,
)


@pytest.mark.parametrize("errors", [5, 30, 100])
def test_one_word_per_utterance_gives_binomial_quantiles(errors):
    # Drawing n one-word utterances of which k are wrong gives Binomial(n, k / n) errors.
    count = 200
    wrong = np.arange(count) < errors
    found = ratio_interval(wrong.astype(int), np.ones(count, dtype=int))
    low, high = stats.binom.ppf([0.025, 0.975], count, errors / count) / count
    assert found.value == errors / count
    assert found.low == pytest.approx(low, abs=1.01 / count)
    assert found.high == pytest.approx(high, abs=1.01 / count)


def test_interval_is_about_that_of_kaldialign():
    generator = np.random.default_rng(1)
    references = [["A"] * n for n in generator.integers(5, 30, size=150)]
    hypotheses = [[word if generator.random() > 0.1 else "B" for word in text] for text in references]
    errors = np.array([text.count("B") for text in hypotheses])
    found = ratio_interval(errors, np.array([len(text) for text in references]))
    expected = kaldialign.bootstrap_wer_ci(references, hypotheses)
    assert found.low == pytest.approx(expected["ci95min"], abs=0.001)
    assert found.high == pytest.approx(expected["ci95max"], abs=0.001)


def test_difference_of_one_word_utterances_has_its_known_distribution():
    # Of 100 utterances the second system repairs 8 and breaks 2: the sum of differences over draws has mean -6 and
    # variance 100 * (0.1 - 0.06 ** 2).
    first, second = np.zeros(100, dtype=int), np.zeros(100, dtype=int)
    first[:8], second[8:10] = 1, 1
    found = ratio_difference(first, second, np.ones(100, dtype=int))
    deviation = np.sqrt(100 * (0.1 - 0.06**2)) / 100
    assert (found.first, found.second) == (0.08, 0.02)
    assert found.change.value == pytest.approx(-0.06)
    assert found.change.low == pytest.approx(-0.06 - 1.96 * deviation, abs=0.011)
    assert found.change.high == pytest.approx(-0.06 + 1.96 * deviation, abs=0.011)
    # Not below 0: P(repairs <= breaks) over multinomial draws, on both sides.
    draws = np.random.default_rng(5).multinomial(100, [0.08, 0.02, 0.9], size=200_000)
    assert found.p_value == pytest.approx(2 * (draws[:, 0] <= draws[:, 1]).mean(), rel=0.15)
    assert found.relative == pytest.approx(-75)


def test_equal_systems_do_not_differ_however_bad():
    errors = np.random.default_rng(2).integers(0, 4, size=50)
    found = ratio_difference(errors, errors, np.full(50, 5))
    assert (found.change.low, found.change.high, found.p_value) == (0, 0, 1)


def test_clear_difference_is_significant_but_never_certain():
    found = ratio_difference(np.full(50, 3), np.full(50, 1), np.full(50, 5))
    assert found.p_value == pytest.approx(2 / (REPLICATIONS + 1))
    assert found.change.low == found.change.high == pytest.approx(-0.4)


def test_pairing_sees_what_two_intervals_do_not():
    # Utterances differ much, systems little but always the same way.
    hard = np.random.default_rng(3).integers(0, 20, size=100)
    words = np.full(100, 20)
    one, other = ratio_interval(hard + 1, words), ratio_interval(hard, words)
    assert other.high > one.low
    assert ratio_difference(hard + 1, hard, words).p_value < 0.001


def test_nothing_to_draw_from_gives_nothing():
    none = np.zeros(0, dtype=int)
    assert np.isnan([ratio_interval(none, none).value, ratio_interval(none, none).low]).all()
    assert np.isnan(ratio_interval(np.ones(3), np.zeros(3)).value)
    assert np.isnan(ratio_difference(none, none, none).p_value)


def test_ratios_with_denominators_of_their_own_equal_the_shared_case():
    generator = np.random.default_rng(5)
    first, second = generator.integers(0, 9, size=(2, 40)).astype(float)
    words = generator.integers(1, 20, 40).astype(float)
    shared, own = ratio_difference(first, second, words), ratios_difference((first, words), (second, words))
    assert own.p_value == shared.p_value
    assert [own.first, own.second, own.change.low, own.change.high] == pytest.approx(
        [shared.first, shared.second, shared.change.low, shared.change.high]
    )
    half = ratios_difference((first, words), (first, 2 * words))
    assert half.second == pytest.approx(half.first / 2) and half.change.high < 0


def test_quantiles_are_those_of_all_values_with_utterances_drawn():
    values = [[1.0, 2.0], [], [3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]]
    assert [quantile(values, share) for share in (0.0, 0.1, 0.5, 0.9, 0.91, 1.0)] == [1, 1, 5, 9, 10, 10]
    interval = quantile_interval(values, 0.5)
    # Draws have the first list alone, the last alone, or some of both.
    assert (interval.value, interval.low, interval.high) == (5.0, 1.0, 6.0)
    assert np.isnan(quantile_interval([[], []], 0.5).value)


def test_quantiles_are_compared_on_the_same_draws():
    generator = np.random.default_rng(6)
    first = [list(generator.normal(size=3) * 10) for _ in range(30)]
    later = [[value + 1 for value in own] for own in first]
    found = quantile_difference(first, later, 0.9)
    # Whatever is drawn, all values of the second are one larger.
    assert [found.change.value, found.change.low, found.change.high] == pytest.approx([1, 1, 1])
    assert found.p_value < 0.01 and quantile_difference(first, first, 0.9).p_value == 1
