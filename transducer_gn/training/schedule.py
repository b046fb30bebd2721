"""The schedule: what alpha, the regulariser's weight and the diagonal prior are at each point of training.

Time is counted in epochs since training branched off (or began), as exact fractions: batch b of an epoch of n batches
is at b / n, whatever n is, so that the slope does not depend on batch sizes or on the number of ranks.
"""

from dataclasses import dataclass
from fractions import Fraction

from transducer_gn.training.settings import AlignmentConfig, NormalisationConfig


@dataclass(frozen=True)
class Weights:
    """What the objective is computed with, now."""

    alpha: float
    regulariser: float
    diagonal_prior: float = 0.0


def position(epochs: int, batch: int, batches: int) -> Fraction:
    """Epochs that are done, after `batch` of the `batches` batches of the current one."""
    return epochs + Fraction(batch, max(batches, 1))


def weights_at(config: NormalisationConfig, epochs: Fraction) -> Weights:
    """Alpha and the regulariser's weight, `epochs` epochs after the branch.

    The regulariser rises linearly to its weight; alpha waits, then falls linearly to its target. Both then stay.
    """
    ramp = 1.0 if config.regulariser_ramp == 0 else min(1.0, float(epochs) / config.regulariser_ramp)
    moved = config.alpha_per_epoch * max(0.0, float(epochs) - config.alpha_delay)
    return Weights(alpha=max(config.alpha, 1.0 - moved), regulariser=ramp * config.regulariser)


def alpha_is_moving(config: NormalisationConfig, epochs: Fraction) -> bool:
    """Whether alpha has yet to reach its target: parameters from before and after must then not be averaged."""
    return weights_at(config, epochs).alpha > config.alpha


def diagonal_prior_at(config: AlignmentConfig, epochs: Fraction) -> float:
    """The diagonal prior, `epochs` epochs after the beginning of training: it falls linearly to 0 and stays there."""
    return config.diagonal_prior * max(0.0, 1.0 - float(epochs) / config.diagonal_epochs)
