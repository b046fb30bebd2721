"""Invariant: alpha and the weights of regulariser and prior depend on the share of epochs done and on nothing else."""

from fractions import Fraction

import pytest

from transducer_gn.common.errors import UserError
from transducer_gn.config import (
    AlignmentConfig,
    CompetitorConfig,
    Config,
    NormalisationConfig,
    OptimiserConfig,
    TrainingConfig,
)
from transducer_gn.recognition.checkpoint import Progress
from transducer_gn.training.schedule import SchedulePoint, schedule_point

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
    assert PAPER.alpha_at(epochs) == pytest.approx(alpha)
    assert PAPER.regulariser_at(epochs) == pytest.approx(regulariser)


@pytest.mark.parametrize("batches", [1, 3, 7, 1000])
def test_epochs_add_up_exactly_for_any_number_of_batches(batches):
    assert Progress(epoch=4, batch=batches, batches_in_epoch=batches).epochs == 5
    assert Progress(epoch=4, batch=1, batches_in_epoch=batches).epochs == 4 + Fraction(1, batches)
    # The same share of an epoch means the same point, however many batches it takes to get there.
    config = Config(normalisation=PAPER)
    progress = Progress(epoch=2, batch=2 * batches, batches_in_epoch=5 * batches)
    assert schedule_point(config, progress) == schedule_point(config, Progress(epoch=2, batch=2, batches_in_epoch=5))


def test_normalisation_counts_from_the_branch_and_the_prior_from_the_beginning():
    config = Config(normalisation=PAPER, alignment=AlignmentConfig(diagonal_prior=50.0, diagonal_epochs=8.0))
    point = schedule_point(config, Progress(epoch=5, batch=3, batches_in_epoch=6, branch_epoch=3))
    assert point == SchedulePoint(alpha=1 - 0.25 * 1.5, regulariser=0.01, diagonal_prior=50.0 * (1 - 5.5 / 8))


def test_progress_goes_from_update_to_update_and_from_epoch_to_epoch():
    progress = Progress(step=7, epoch=2, batch=1, batches_in_epoch=4, branch_epoch=1)
    progress.count_update(batches=2)
    assert (progress.step, progress.batch, progress.epochs_since_branch) == (8, 3, Fraction(7, 4))
    progress.end_epoch()
    assert progress == Progress(step=8, epoch=3, branch_epoch=1)


def test_local_training_never_moves():
    local = Config()
    for epoch in (0, 2, 40):
        progress = Progress(epoch=epoch, batch=1, batches_in_epoch=3)
        assert schedule_point(local, progress) == SchedulePoint(alpha=1.0, regulariser=0.0)


def test_the_diagonal_prior_falls_to_nothing():
    config = AlignmentConfig(diagonal_prior=50.0, diagonal_epochs=1.6)
    values = [config.diagonal_prior_at(Fraction(x, 10)) for x in (0, 4, 16, 30)]
    assert values == pytest.approx([50.0, 37.5, 0.0, 0.0])
    assert AlignmentConfig().diagonal_prior_at(0) == 0.0


def test_the_learning_rate_cools_down_to_nothing_at_the_end():
    config = Config(optimiser=OptimiserConfig(cooldown_epochs=1.5), training=TrainingConfig(epochs=4))
    places = [(0, 0), (2, 1), (3, 0), (3, 1), (4, 0)]
    points = [schedule_point(config, Progress(epoch=epoch, batch=batch, batches_in_epoch=2)) for epoch, batch in places]
    assert [point.cooldown for point in points] == pytest.approx([1, 1, 2 / 3, 1 / 3, 0])
    # Without it the end is as any other moment, wherever a branch may have begun.
    assert schedule_point(Config(training=TrainingConfig(epochs=4)), Progress(epoch=4, branch_epoch=3)).cooldown == 1
    with pytest.raises(UserError, match=r"optimiser.cooldown_epochs: must be 0 or more, not -1"):
        OptimiserConfig(cooldown_epochs=-1)
    for endless in (float("inf"), float("nan")):
        with pytest.raises(UserError, match=r"optimiser.cooldown_epochs: must be 0 or more, not (inf|nan)"):
            OptimiserConfig(cooldown_epochs=endless)


def test_no_ramp_means_full_weight_at_once():
    assert NormalisationConfig(regulariser=0.02, regulariser_ramp=0).regulariser_at(0) == 0.02


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
