"""Files of a run that one part of this program writes and another reads: their names, and what they say."""

from dataclasses import dataclass

# Numbers of training and validation, one JSON object per line.
METRICS = "metrics.jsonl"

# Where a run branched off, as the path of that checkpoint relative to the folder.
BRANCH = "branch.json"

# The best epoch so far, for those who only look at the folder: a `BestEpoch`.
BEST = "best.json"

# Held by whoever trains in a folder, so that nobody else does at the same time.
TRAINING_LOCK = ".training"


@dataclass(frozen=True)
class BestEpoch:
    """The epoch of a run with the lowest word error rate on the dev set.

    Attributes:
        epoch: its number, from 1; 0 for none
        wer: its word error rate in per cent; None where there is no dev set
        last_epoch: whole epochs done; 0 where the file does not say
    """

    epoch: int
    wer: float | None = None
    last_epoch: int = 0
