"""Noticing when training goes wrong, and saying what to change."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

from transducer_gn.common.errors import UserError
from transducer_gn.config import CompetitorConfig, TrainingConfig
from transducer_gn.data.batches import Batch


class Watch:
    """Counts updates that could not be made, and updates in a row whose competitors were useless or few."""

    def __init__(self, config: TrainingConfig, competitors: CompetitorConfig) -> None:
        self._config = config
        self._competitors = competitors
        self.bad_batches = 0
        self.collapsed = 0
        self.scarce = 0

    def state_dict(self) -> dict[str, int]:
        """The counts."""
        return {"bad_batches": self.bad_batches, "collapsed": self.collapsed, "scarce": self.scarce}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on from what `state_dict` gave."""
        self.bad_batches, self.collapsed, self.scarce = state["bad_batches"], state["collapsed"], state["scarce"]

    def end_epoch(self) -> None:
        """Forget the updates that were left out: an utterance without a finite loss comes in every epoch."""
        self.bad_batches = 0

    def skipped(self, step: int) -> None:
        """An update had no finite gradient and was left out; too many of them in one epoch end training."""
        self.bad_batches += 1
        logging.warning(
            "update %d has no finite gradient and is left out (%d so far in this epoch)", step, self.bad_batches
        )
        if self.bad_batches >= self._config.max_bad_batches:
            raise UserError(
                f"{self.bad_batches} updates of this epoch had no finite gradient; lower optimiser.initial_lr, set "
                "training.clip, or look at the batches saved beside the checkpoints (training.max_bad_batches is the "
                "limit)"
            )

    def look_at(self, step: int, values: Mapping[str, float], alpha: float, updates: int) -> None:
        """Warn when the objective no longer means anything.

        Args:
            step: updates made
            values: metrics of the objective over the last `updates`
            alpha: interpolation weight now
            updates: since the last look
        """
        if alpha >= 1:
            return
        is_collapsed = values["reference_share"] > self._config.collapse_share
        is_scarce = values["competitors"] < 0.5 * self._competitors.count
        self.collapsed = self.collapsed + updates if is_collapsed else 0
        self.scarce = self.scarce + updates if is_scarce else 0
        limit = self._config.collapse_updates
        if self.collapsed >= limit > self.collapsed - updates:
            logging.warning(
                "update %d: the reference has held %.4f of Z for %d updates, so nothing is learnt from competitors. If "
                "errors on the dev set rise, the search finds useless ones: lower normalisation.alpha_per_epoch, raise "
                "normalisation.regulariser or normalisation.alpha, or raise competitors.count",
                step, values["reference_share"], self.collapsed,
            )  # fmt: skip
        if self.scarce >= limit > self.scarce - updates:
            logging.warning(
                "update %d: only %.1f distinct competitors per utterance for %d updates, of %d wanted; raise "
                "competitors.beam or competitors.max_tokens_per_frame",
                step, values["competitors"], self.scarce, self._competitors.count,
            )  # fmt: skip


@contextmanager
def explained_memory_errors(batch: Batch) -> Iterator[None]:
    """Turn torch's complaint that memory is used up, on a GPU or on a CPU, into a UserError about `batch`."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
            raise out_of_memory(batch) from error
        raise


def out_of_memory(batch: Batch) -> UserError:
    """What to tell the user whose batch does not fit."""
    return UserError(
        f"out of memory on a batch of {len(batch)} utterances, {float(batch.durations.sum()):.0f} s in all, the "
        f"longest {float(batch.durations.max()):.1f} s with {int(batch.token_lengths.max())} tokens at most "
        f"({batch.ids[0]}, ...); lower data.batches.max_duration, data.batches.max_duration_of_utterance or "
        "competitors.max_length"
    )
