"""The schedule: what alpha, the regulariser's weight and the diagonal prior are at each point of training.

Time is counted in epochs since training branched off (or began), as exact fractions: batch b of an epoch of n batches
is at b / n, whatever n is, so that the slope does not depend on batch sizes or on the number of ranks.
"""

from dataclasses import dataclass
from fractions import Fraction

from transducer_gn.config import AlignmentConfig, NormalisationConfig


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
    """Alpha and the regulariser's weight, `epochs` epochs after the branch."""
    return Weights(alpha=config.alpha_at(epochs), regulariser=config.regulariser_at(epochs))


def alpha_is_moving(config: NormalisationConfig, epochs: Fraction) -> bool:
    """Whether alpha has yet to reach its target: parameters from before and after must then not be averaged."""
    return config.alpha_at(epochs) > config.alpha


def diagonal_prior_at(config: AlignmentConfig, epochs: Fraction) -> float:
    """The diagonal prior, `epochs` epochs after the beginning of training."""
    return config.diagonal_prior_at(epochs)
