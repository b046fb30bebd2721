"""Trainings that are stopped on request after a number of updates, as a signal would stop them."""

from transducer_gn.training.learner import Update
from transducer_gn.training.trainer import Trainer


def run_until(trainer: Trainer, stop_after: int | None) -> Trainer:
    """Train; with a number, request a stop at that update."""
    if stop_after is not None:
        after_update = trainer.bookkeeper.after_update

        def and_stop(update: Update) -> None:
            after_update(update)
            trainer.stop.is_made = trainer.state.progress.step >= stop_after

        trainer.bookkeeper.after_update = and_stop
    trainer.run()
    return trainer
