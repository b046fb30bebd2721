"""The schedule: what alpha, the regulariser's weight and others of the objective and its updates are at each point.

    alpha        1 ─────────┐                     regulariser          ┌──────────────
                             ╲                                       ╱
                 target       └──────────                        0 ╱
                 branch  delay             epochs                 branch  ramp      epochs

Time is counted in epochs since training branched off (or began), as exact fractions: batch b of an epoch of n batches
is at b / n, whatever n is, so that the slope does not depend on batch sizes or on the number of ranks. The diagonal
prior counts from the beginning of all training, branch or not, and the cool-down of the learning rate from its end.
"""

from dataclasses import dataclass

from transducer_gn.config import Config
from transducer_gn.recognition.checkpoint import Progress


@dataclass(frozen=True)
class SchedulePoint:
    """What an update is made with at one point of training.

    Attributes:
        alpha: interpolation weight, from 1 (local) to 0 (global)
        regulariser: weight of the log-sum regulariser
        diagonal_prior: strength of the prior on the alignments of the reference
        mwer: weight of the expected errors; the likelihood has the rest
        cooldown: share of the learning rate that is left as training comes to its end
    """

    alpha: float
    regulariser: float
    diagonal_prior: float = 0.0
    mwer: float = 0.0
    cooldown: float = 1.0

    @property
    def needs_competitors(self) -> bool:
        """Whether the objective compares the reference with anything."""
        return self.alpha < 1 or self.mwer > 0


def schedule_point(config: Config, progress: Progress) -> SchedulePoint:
    """The point of the schedule that training has come to."""
    since_branch = progress.epochs_since_branch
    return SchedulePoint(
        alpha=config.normalisation.alpha_at(since_branch),
        regulariser=config.normalisation.regulariser_at(since_branch),
        diagonal_prior=config.alignment.diagonal_prior_at(progress.epochs),
        mwer=config.mwer.weight,
        cooldown=config.optimiser.cooldown_at(config.training.epochs - progress.epochs),
    )
