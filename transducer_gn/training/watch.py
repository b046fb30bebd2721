"""Noticing when training goes wrong, and saying what to change."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch

from transducer_gn.common.errors import UserError
from transducer_gn.common.files import replace_when_done
from transducer_gn.config import CompetitorConfig, TrainingConfig
from transducer_gn.data.batches import Batch
from transducer_gn.recognition.checkpoint import write_tensors


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

    def skipped(self, step: int) -> None:
        """An update had no finite gradient and was left out; too many of them end training."""
        self.bad_batches += 1
        logging.warning("update %d has no finite gradient and is left out (%d so far)", step, self.bad_batches)
        if self.bad_batches >= self._config.max_bad_batches:
            raise UserError(
                f"{self.bad_batches} updates had no finite gradient; lower optimiser.initial_lr, set training.clip, or "
                "look at the batches saved beside the checkpoints (training.max_bad_batches is the limit)"
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


def save_batch(folder: Path, batch: Batch, step: int, rank: int) -> Path:
    """Keep a batch for inspection; returns where."""
    path = folder / f"bad-batch-{step}-{rank}.pt"
    names = ("features", "feature_lengths", "tokens", "token_lengths", "ids", "texts")
    content = {name: getattr(batch, name) for name in names}
    with replace_when_done(path) as sibling:
        write_tensors({name: x.cpu() if isinstance(x, torch.Tensor) else x for name, x in content.items()}, sibling)
    return path


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
        f"({batch.ids[0]}, ...); lower data.batches.max_duration or data.batches.max_duration_of_utterance"
    )
