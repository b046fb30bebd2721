"""A run at the end of every epoch, decoded and measured: what it learns when.

Results of each epoch stand in a folder of their own, apart from those of the epoch that a report is about.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from transducer_gn.evaluation.latency_results import Latency, find_latency, read_latency
from transducer_gn.evaluation.results import Results, find_results, read_results

FOLDER = "epochs"


@dataclass(frozen=True)
class EpochResults:
    """What is known of a test set after an epoch.

    Attributes:
        epoch: counted from 1
        results: of decoding
        latency: when words come out; None if that was not measured
    """

    epoch: int
    results: Results
    latency: Latency | None


def trained_epochs(exp_dir: Path) -> list[int]:
    """The epochs of a run that have a checkpoint, in order."""
    return sorted(_numbers(exp_dir.glob("epoch-*.pt")))


def epoch_folder(exp_dir: Path, epoch: int) -> Path:
    """Where the results of an epoch go."""
    return exp_dir / FOLDER / f"epoch-{epoch}"


def find_epochs(exp_dir: Path, part: str) -> list[EpochResults]:
    """What was measured of a test set, epoch after epoch; UserError if a file cannot be read."""
    found = []
    for epoch in sorted(_numbers((exp_dir / FOLDER).glob("epoch-*"))):
        folder = epoch_folder(exp_dir, epoch)
        decoded, measured = find_results(folder), find_latency(folder)
        if part in decoded:
            latency = read_latency(measured[part]) if part in measured else None
            found.append(EpochResults(epoch, read_results(decoded[part]), latency))
    return found


def _numbers(paths: Iterable[Path]) -> list[int]:
    """N of all names that begin with epoch-N."""
    return [int(found[1]) for path in paths if (found := re.fullmatch(r"epoch-(\d+)(\.pt)?", path.name))]
