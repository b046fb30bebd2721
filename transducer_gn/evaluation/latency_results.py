"""Times of whole test sets: their file, means, and differences between systems on the same tokens and words."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from transducer_gn.common.errors import UserError
from transducer_gn.common.json_files import read_json, write_json
from transducer_gn.common.stages import read_if_made_from
from transducer_gn.common.typed import typed
from transducer_gn.config import LatencyConfig, RecognitionConfig
from transducer_gn.data.labels import group_order
from transducer_gn.data.prepared import PreparedData
from transducer_gn.evaluation.bootstrap import Difference, Interval, ratio_difference, ratio_interval
from transducer_gn.evaluation.decoding import all_but, count_cuts, evaluation_batches
from transducer_gn.evaluation.latency import UtteranceTimes, measure_times
from transducer_gn.evaluation.results import read_entry
from transducer_gn.evaluation.stability_results import compare_stability, summarise, was_live
from transducer_gn.recognition.system import System
from transducer_gn.recognition.utterances import recognition_identity

FOLDER = "latency"
# Of what a file holds of an utterance; files of others are measured again.
FORMAT = 2
# Positions of tokens in the utterance that are told apart.
POSITIONS = 20

# For each utterance, which of its tokens count.
TokenChoice = list[list[bool]]
# An utterance under two systems.
Sides = tuple[UtteranceTimes, UtteranceTimes]


@dataclass(frozen=True)
class Latency:
    """The times of a test set under one system."""

    part: str
    system: str
    identity: dict[str, Any]
    utterances: list[UtteranceTimes]


@dataclass(frozen=True)
class LatencyDifference:
    """How much later (above 0) the second system is, in milliseconds.

    Attributes:
        emission: by name of the tokens, "all" for all of them
        positions: by position of the token in the utterance, from the first on
        shown: of words that are right in the end under both systems; None where no live recogniser was run
        settled: the same, from when on they stay
        stability: measures of steadiness, and delays of words after their true ends, by name; empty where no live
            recogniser was run
    """

    emission: dict[str, Difference]
    positions: list[Difference]
    shown: Difference | None
    settled: Difference | None
    stability: dict[str, Difference] = field(default_factory=dict)


def measure_part(
    folder: Path,
    system: System,
    settings: RecognitionConfig,
    measured: LatencyConfig,
    data: PreparedData,
    part: str,
    max_duration: float,
) -> Latency:
    """Measure one test set into `folder`, or read what is there if it is what would come out."""
    chunk = system.chunk(settings)
    name = system.describe(settings)
    # What words are held for is a matter of tables.
    chosen = {name: value for name, value in asdict(measured).items() if name != "holds"}
    identity = {**recognition_identity(system, settings, data, part), "measured": chosen, "format": FORMAT}
    path = folder / f"latency-{part}-{name}.json"
    if (latency := read_if_made_from(path, identity, read_latency)) is not None:
        logging.info("%s: %s is complete", part, path)
        return latency
    display = settings if measured.display and chunk.size is not None else None
    total, left_out = count_cuts(data.cuts(part), part), all_but(data, part, measured.utterances)
    ends = data.word_ends(part) if display is not None else {}
    found: list[UtteranceTimes] = []
    for batch in evaluation_batches(system, data, part, max_duration, left_out):
        found += measure_times(system, batch, chunk, display, ends)
        logging.info("%s: times of %d of %d utterances", part, len(found), total - len(left_out))
    latency = Latency(part, name, identity, sorted(found, key=lambda utterance: utterance.id))
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, {**asdict(latency), **summary_values(latency)})
    return latency


def summary_values(latency: Latency) -> dict[str, Any]:
    """Means and measures of a set, for programs."""
    values: dict[str, Any] = {"emission_ms": asdict(mean_emission(latency))}
    if was_live(latency.utterances):
        measures = summarise(latency.utterances, latency.utterances)
        values["stability"] = {name: asdict(value) for name, value in measures.items()}
    return values


def check_lengths(utterance: UtteranceTimes) -> None:
    """ValueError unless there is a time, if perhaps none that is known, for each token and word."""
    if len(utterance.tokens) != len(utterance.emitted):
        raise ValueError(
            f"{utterance.id} has {len(utterance.tokens)} tokens and {len(utterance.emitted)} times of them"
        )
    if len(utterance.shown) != len(utterance.settled):
        raise ValueError(f"{utterance.id} has words that were shown, and others that settled")
    if utterance.ends and len(utterance.ends) != len(utterance.text):
        raise ValueError(f"{utterance.id} has {len(utterance.text)} words and {len(utterance.ends)} ends of them")


def read_latency(path: Path) -> Latency:
    """Read a `latency` file; UserError if it is none."""
    try:
        content = read_json(path, dict[str, Any])
        utterances = [read_entry(UtteranceTimes, utterance) for utterance in typed(list, content["utterances"])]
        for utterance in utterances:
            check_lengths(utterance)
        part, system = (typed(str, content[name]) for name in ("part", "system"))
        return Latency(part, system, typed(dict[str, Any], content["identity"]), utterances)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} does not hold results of compute_latency.py; delete it and compute it again"
        ) from error


def find_latency(exp_dir: Path) -> dict[str, Path]:
    """The newest `latency` file of each test set of an experiment."""
    found: dict[str, Path] = {}
    for path in sorted((exp_dir / FOLDER).glob("latency-*.json"), key=lambda path: path.stat().st_mtime_ns):
        found[read_latency(path).part] = path
    return found


def mean_emission(latency: Latency, choice: TokenChoice | None = None) -> Interval:
    """Mean expected emission time over all tokens, or over the chosen ones, in milliseconds."""
    chosen = choice or [[True] * len(u.tokens) for u in latency.utterances]
    rows = [
        np.array([time for time, is_chosen in zip(u.emitted, mask, strict=True) if is_chosen and time is not None])
        for u, mask in zip(latency.utterances, chosen, strict=True)
    ]
    return ratio_interval(np.array([1000 * row.sum() for row in rows]), np.array([len(row) for row in rows]))


def compare_latency(
    first: Latency, second: Latency, further: Mapping[str, TokenChoice] = MappingProxyType({})
) -> LatencyDifference:
    """Compare two systems token by token and word by word; UserError if these are not the same.

    Args:
        further: choices of tokens by name, beside all tokens and those of each group
    """
    sides = list(zip(first.utterances, second.utterances, strict=False))
    if len(first.utterances) != len(second.utterances) or any(a.id != b.id for a, b in sides):
        raise UserError(f"{first.part}: the two systems were not measured on the same utterances; measure both again")
    if any(a.tokens != b.tokens for a, b in sides):
        raise UserError(
            f"{first.part}: the two systems have different token models, so their tokens cannot be compared"
        )
    choices = tokens_by_group(first.utterances) | dict(further)
    emission = {
        name: difference for name, choice in choices.items() if (difference := _difference(sides, choice)) is not None
    }
    positions = [
        _difference(sides, [[p == n for n in range(len(a.tokens))] for a, _ in sides]) for p in range(POSITIONS)
    ]
    return LatencyDifference(
        emission,
        [difference for difference in positions if difference is not None],
        _word_difference(sides, "shown"),
        _word_difference(sides, "settled"),
        compare_stability(first.utterances, second.utterances),
    )


def tokens_by_group(utterances: Sequence[UtteranceTimes]) -> dict[str, TokenChoice]:
    """All tokens, named "all", and the tokens of each group where there are several."""
    choices = {"all": [[True] * len(u.tokens) for u in utterances]}
    groups = sorted({u.group for u in utterances}, key=group_order)
    if len(groups) > 1:
        choices |= {group: [[u.group == group] * len(u.tokens) for u in utterances] for group in groups}
    return choices


def _difference(sides: Sequence[Sides], choice: TokenChoice) -> Difference | None:
    """Mean emission times of the chosen tokens that both systems can emit; None if there are none."""
    return _paired(
        [
            [(x, y) for x, y, chosen in zip(a.emitted, b.emitted, mask, strict=True) if chosen]
            for (a, b), mask in zip(sides, choice, strict=True)
        ]
    )


def _word_difference(sides: Sequence[Sides], name: str) -> Difference | None:
    """The same of words; None if a system was not run live."""
    if not all(getattr(a, name) and getattr(b, name) for a, b in sides if a.tokens):
        return None
    return _paired([list(zip(getattr(a, name), getattr(b, name), strict=True)) for a, b in sides])


def _paired(times: list[list[tuple[float | None, float | None]]]) -> Difference | None:
    """Compare pairs of times in seconds, by utterance; in milliseconds."""
    both = [[(x, y) for x, y in row if x is not None and y is not None] for row in times]
    counts = np.array([len(row) for row in both])
    if counts.sum() == 0:
        return None
    first, second = (np.array([1000 * sum(both_times[side] for both_times in row) for row in both]) for side in (0, 1))
    return ratio_difference(first, second, counts)
