"""Invariant: alpha and the regulariser's weight depend on the share of epochs done and on nothing else."""

from fractions import Fraction

import pytest

from transducer_gn.common.errors import UserError
from transducer_gn.config import AlignmentConfig, CompetitorConfig, NormalisationConfig
from transducer_gn.training.schedule import alpha_is_moving, diagonal_prior_at, position, weights_at

PAPER = NormalisationConfig(alpha=0.3, regulariser=0.01)


@pytest.mark.parametrize(
    ("epochs", "alpha", "regulariser"),
    [
        (Fraction(0), 1.0, 0.0),
        (Fraction(1, 2), 1.0, 0.005),  # the regulariser comes first
        (Fraction(1), 1.0, 0.01),
        (Fraction(2), 0.75, 0.01),  # a quarter per epoch
        (Fraction(38, 10), 0.3, 0.01),  # 2.8 epochs from 1 to 0.3
        (Fraction(30), 0.3, 0.01),
    ],
)
def test_the_papers_schedule(epochs, alpha, regulariser):
    weights = weights_at(PAPER, epochs)
    assert weights.alpha == pytest.approx(alpha) and weights.regulariser == pytest.approx(regulariser)


@pytest.mark.parametrize("batches", [1, 3, 7, 1000])
def test_epochs_add_up_exactly_for_any_number_of_batches(batches):
    assert position(4, batches, batches) == 5
    assert position(0, 1, batches) * batches == 1
    # The same share of an epoch means the same weights, however many batches it takes to get there.
    assert weights_at(PAPER, position(2, 2 * batches, 5 * batches)) == weights_at(PAPER, Fraction(12, 5))


def test_local_training_never_moves():
    local = NormalisationConfig()
    for epochs in (Fraction(0), Fraction(7, 3), Fraction(40)):
        assert weights_at(local, epochs).alpha == 1.0 and weights_at(local, epochs).regulariser == 0.0
        assert not alpha_is_moving(local, epochs)


def test_alpha_counts_as_moving_until_it_has_arrived():
    assert alpha_is_moving(PAPER, Fraction(0)) and alpha_is_moving(PAPER, Fraction(37, 10))
    assert not alpha_is_moving(PAPER, Fraction(39, 10))


def test_the_diagonal_prior_falls_to_nothing():
    config = AlignmentConfig(diagonal_prior=50.0, diagonal_epochs=1.6)
    values = [diagonal_prior_at(config, Fraction(x, 10)) for x in (0, 4, 16, 30)]
    assert values == pytest.approx([50.0, 37.5, 0.0, 0.0])
    assert diagonal_prior_at(AlignmentConfig(), Fraction(0)) == 0.0


def test_no_ramp_means_full_weight_at_once():
    assert weights_at(NormalisationConfig(regulariser=0.02, regulariser_ramp=0), Fraction(0)).regulariser == 0.02


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(alpha=1.2), "normalisation.alpha"),
        (dict(alpha_per_epoch=0), "normalisation.alpha_per_epoch"),
        (dict(regulariser=-0.1), "normalisation.regulariser"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(UserError, match=message):
        NormalisationConfig(**settings)


def test_a_beam_that_cannot_hold_the_competitors_is_named():
    with pytest.raises(UserError, match="competitors.beam"):
        CompetitorConfig(count=5, beam=5)
