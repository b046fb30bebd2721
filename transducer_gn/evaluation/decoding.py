"""Decoding of whole test sets: can be stopped at any time, and goes on from there."""

import json
import logging
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from lhotse import CutSet
from lhotse.cut import Cut

from transducer_gn.common.durations import duration
from transducer_gn.common.errors import UserError
from transducer_gn.common.files import write_text
from transducer_gn.common.json_files import parse_json
from transducer_gn.common.stages import read_if_made_from, same_inputs
from transducer_gn.config import EvaluationDataConfig, RecognitionConfig
from transducer_gn.data.batches import Batch, Batches, Inputs
from transducer_gn.data.prepared import PreparedData
from transducer_gn.evaluation.results import Results, read_entry, read_results, results_path, write_results
from transducer_gn.recognition.error_rates import Recognised, total_errors
from transducer_gn.recognition.front_end import check_features
from transducer_gn.recognition.system import System
from transducer_gn.recognition.utterances import recognise, recognition_identity

SECONDS_BETWEEN_LINES = 5.0


def prepared_data(config: EvaluationDataConfig, system: System) -> PreparedData:
    """The data to evaluate a system on; UserError if its features are not those of the system's front end."""
    data = PreparedData(config.data_dir or Path(system.config.data.folder))
    if not system.config.model.front_end.is_trained:
        check_features(data, system.front_end)
    return data


def chosen_parts(config: EvaluationDataConfig, data: PreparedData, flag: str = "--sets") -> list[str]:
    """The test sets; UserError naming the flag and one that is not there."""
    there = data.parts("dev") + data.parts("test")
    for name in config.sets or []:
        if name not in there:
            raise UserError(f"{flag}: {data.folder} has no set {name!r}, only {', '.join(there)}")
    if not there:
        raise UserError(f"{data.folder} has no dev or test part; name some to prepare.sh with --dev and --test")
    return config.sets or there


@dataclass(frozen=True)
class NotIn:
    """Says which cuts remain. A class, so that lazy cut sets that hold it can be pickled."""

    done: frozenset[str]

    def __call__(self, cut: Cut) -> bool:
        return cut.id not in self.done


@dataclass(frozen=True)
class PartDecoder:
    """Decodes one test set.

    Attributes:
        folder: where results go
        part: the test set of `data`
        max_duration: seconds of audio that are recognised together
    """

    folder: Path
    system: System
    settings: RecognitionConfig
    data: PreparedData
    part: str
    max_duration: float

    def run(self) -> Results:
        """Decode, or read what is there if it is what would come out."""
        name = self.system.describe(self.settings)
        identity = recognition_identity(self.system, self.settings, self.data, self.part)
        path = results_path(self.folder, self.part, name)
        progress = Unfinished(self.folder / f".unfinished-{self.part}-{name}.jsonl", identity)
        if (results := read_if_made_from(path, identity, read_results)) is not None:
            logging.info("%s: %s is complete", self.part, path)
            # A call that was killed when it had written the results has left it behind.
            progress.remove()
            return results
        self.folder.mkdir(parents=True, exist_ok=True)
        recognised = progress.read()
        if recognised:
            logging.info("%s: going on after %d utterances", self.part, len(recognised))
        recognised += self._decode_rest(recognised, progress)
        # Batches depend on lengths; an order that does not lets results be compared.
        results = Results(self.part, name, identity, sorted(recognised, key=lambda utterance: utterance.id))
        write_results(self.folder, results)
        progress.remove()
        return results

    def _decode_rest(self, done: list[Recognised], progress: "Unfinished") -> list[Recognised]:
        """Recognise all utterances but those that are `done`, writing down each batch."""
        total = count_cuts(self.data.cuts(self.part), self.part)
        if len(done) == total:
            return []
        found: list[Recognised] = []
        started = last_line = time.monotonic()
        ids = frozenset(utterance.id for utterance in done)
        for batch in evaluation_batches(self.system, self.data, self.part, self.max_duration, ids):
            new = recognise(self.system, batch, self.settings)
            progress.add(new)
            found += new
            now, count = time.monotonic(), len(done) + len(found)
            if now - last_line > SECONDS_BETWEEN_LINES or count == total:
                last_line = now
                left = duration((now - started) / len(found) * (total - count))
                wer = total_errors(done + found).rate
                logging.info("%s: %d of %d utterances, WER %.2f, %s left", self.part, count, total, wer, left)
        return found


def evaluation_batches(
    system: System, data: PreparedData, part: str, max_duration: float, done: frozenset[str] = frozenset()
) -> Iterator[Batch]:
    """Batches of a test set on the system's device, without the utterances that are `done`."""
    settings = replace(system.config.data.batches, max_duration=max_duration)
    inputs = Inputs.of(system.config.model.front_end)
    cuts = data.cuts(part).filter(NotIn(done))
    for batch in Batches(cuts, system.tokenizer, settings, training=False, inputs=inputs):
        yield batch.to(system.device)


def spread_batches(
    system: System, data: PreparedData, part: str | None, utterances: int, max_duration: float
) -> Iterator[Batch]:
    """Batches of so many utterances, spread over a dev or test set (the first one if None), on the system's device."""
    chosen = chosen_parts(EvaluationDataConfig(sets=None if part is None else [part]), data, "--set")[0]
    logging.info("%d utterances of %s", min(utterances, count_cuts(data.cuts(chosen), chosen)), chosen)
    yield from evaluation_batches(system, data, chosen, max_duration, all_but(data, chosen, utterances))


def all_but(data: PreparedData, part: str, count: int | None) -> frozenset[str]:
    """Ids of the utterances to leave out, so that `count` remain that are spread evenly."""
    ids = [cut.id for cut in data.cuts(part)]
    if count is None or count >= len(ids):
        return frozenset()
    chosen = {ids[number * len(ids) // count] for number in range(count)}
    return frozenset(ids) - chosen


def count_cuts(cuts: CutSet, part: str) -> int:
    """How many utterances a test set has; UserError if none."""
    total = sum(1 for _ in cuts)
    if total == 0:
        raise UserError(f"the test set {part} is empty; run prepare.sh again, or choose others with --sets")
    return total


class Unfinished:
    """What is recognised so far of a test set: a file that grows batch by batch."""

    def __init__(self, path: Path, identity: dict[str, Any]) -> None:
        self._path = path
        self._identity = identity

    def read(self) -> list[Recognised]:
        """The utterances so far; none if the file is of other parameters or settings, or cannot be read."""
        try:
            first, *lines = self._path.read_text(encoding="utf-8").split("\n")
            if not same_inputs(parse_json(first), self._identity):
                raise ValueError("another system")
            # What follows the last line end was cut off. A call that was killed may have left a decode running, which
            # wrote here beside another: each utterance counts once.
            entries = [read_entry(Recognised, parse_json(line)) for line in lines[:-1]]
            found = list({utterance.id: utterance for utterance in entries}.values())
        except (OSError, ValueError, TypeError, KeyError):
            found = []
        self._rewrite(found)
        return found

    def add(self, utterances: list[Recognised]) -> None:
        """Append a batch."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(asdict(utterance)) + "\n" for utterance in utterances))

    def remove(self) -> None:
        """Delete the file: the test set is complete."""
        # A file system that nobody may write to refuses that even where there is no file.
        if self._path.exists():
            self._path.unlink(missing_ok=True)

    def _rewrite(self, utterances: list[Recognised]) -> None:
        write_text(self._path, json.dumps(self._identity) + "\n")
        self.add(utterances)


def search_folder(exp_dir: Path, settings: RecognitionConfig) -> Path:
    """Where results of a kind of search go."""
    return exp_dir / f"{settings.method}_search"


def set_up_process() -> None:
    """A log for people, and a CPU that is not slowed down by subnormal numbers."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", force=True)
    torch.set_flush_denormal(True)
