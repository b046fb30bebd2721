"""How good the model is now: loss and word error rate on a part of the dev set."""

import logging
import random
from dataclasses import dataclass
from itertools import chain
from math import nan

import torch
from lhotse import CutSet

from transducer_gn.common.errors import NotFiniteError, UserError
from transducer_gn.common.seeds import stable_seed
from transducer_gn.config import Config, RecognitionConfig, TrainingConfig
from transducer_gn.data.batches import Batches, Inputs
from transducer_gn.data.prepared import PreparedData
from transducer_gn.data.tokenizer import Tokenizer
from transducer_gn.model.chunk import evaluation_chunk
from transducer_gn.recognition.error_rates import Recognised, total_errors
from transducer_gn.recognition.system import System
from transducer_gn.recognition.utterances import recognise_frames, with_tail
from transducer_gn.training.clock import Clock
from transducer_gn.training.distributed import World
from transducer_gn.training.not_finite import Fault
from transducer_gn.training.objective import SUMS, metrics
from transducer_gn.training.schedule import SchedulePoint
from transducer_gn.training.training_pass import Plan, TrainingPass

SENTENCES = 3


@dataclass(frozen=True)
class Validation:
    """Results over all ranks: numbers by name (`wer` in per cent), and a few references with their recognition."""

    values: dict[str, float]
    sentences: list[tuple[str, str]]


class Validator:
    """Validates on utterances of the dev parts, divided among ranks."""

    def __init__(self, config: Config, data: PreparedData, tokenizer: Tokenizer, world: World) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._world = world
        settings, inputs = config.data.batches, Inputs.of(config.model.front_end)
        place = dict(rank=world.rank, world_size=world.size)
        cuts = validation_cuts(config.training, data)
        self._batches = [Batches(part, tokenizer, settings, training=False, inputs=inputs, **place) for part in cuts]
        self.chunk = evaluation_chunk(config.model.streaming)

    @property
    def has_data(self) -> bool:
        """Whether there is a dev set."""
        return bool(self._batches)

    @torch.no_grad()
    def validate(self, training_pass: TrainingPass, weights: SchedulePoint) -> Validation:
        """Evaluate at the given weights under the chunk of evaluation."""
        training_pass.eval()
        system = System("in training", training_pass.model, self._config, self._tokenizer, weights.alpha)
        settings = RecognitionConfig(beam=self._config.training.validation_beam)
        sums = {name: torch.zeros((), dtype=torch.float64) for name in (*SUMS, "errors", "words")}
        sentences: list[tuple[str, str]] = []
        for batch in chain.from_iterable(self._batches):
            plan = Plan(batch.to(self._world.device), self.chunk, None, seed=0)
            try:
                found, utterances = self._evaluate(training_pass, system, plan, weights, settings)
            except (NotFiniteError, UserError) as error:
                sentence = Fault(batch, str(error)).sentence(self._config.training.precision)
                logging.warning("validation leaves out a batch: %s", sentence)
                continue
            sums = {name: total + found[name] for name, total in sums.items()}
            sentences += [as_sentences(one) for one in utterances[: SENTENCES - len(sentences)]]
        training_pass.train()
        sums = self._world.sum(sums)
        wer = 100 * float(sums["errors"]) / float(sums["words"]) if sums["words"] > 0 else nan
        return Validation({"wer": wer, **metrics(sums)}, sentences)

    def _evaluate(
        self,
        training_pass: TrainingPass,
        system: System,
        plan: Plan,
        weights: SchedulePoint,
        settings: RecognitionConfig,
    ) -> tuple[dict[str, torch.Tensor], list[Recognised]]:
        """What one batch adds to the sums, and its utterances; `NotFiniteError` if its loss is not finite."""
        # Encoded once, for the loss and for recognition, unless that one has silence after each utterance.
        encoded = training_pass.encode(plan.batch, plan.chunk)
        found = training_pass.objective(*encoded, plan, weights, Clock(self._world.device)).sums
        padded = with_tail(plan.batch, system.tail(settings))
        heard = encoded if padded is plan.batch else training_pass.encode(padded, plan.chunk)
        utterances = recognise_frames(system, plan.batch, heard, settings)
        sums = {name: value.double().cpu() for name, value in (dict(found) | error_sums(utterances)).items()}
        if not sums["loss"].isfinite():
            raise NotFiniteError("the loss is not finite")
        return sums, utterances


def validation_cuts(settings: TrainingConfig, data: PreparedData) -> list[CutSet]:
    """The utterances to validate on, of each dev part that the settings name; UserError if there is no such part.

    Those drawn at random are the same in every run, so that runs can be compared.
    """
    there = data.parts("dev")
    for name in settings.validation_sets or []:
        if name not in there:
            raise UserError(
                f"training.validation_sets: {data.folder} has no dev set {name!r}, only {', '.join(there) or 'none'}"
            )
    parts = there if settings.validation_sets is None else settings.validation_sets
    if settings.validation_utterances == "all":
        return [data.cuts(part) for part in parts]
    share = max(1, settings.validation_utterances // max(len(parts), 1))
    if not settings.validation_random:
        return [data.cuts(part).subset(first=share) for part in parts]
    return [drawn(data.cuts(part), share, stable_seed("validation", part)) for part in parts]


def drawn(cuts: CutSet, count: int, seed: int) -> CutSet:
    """So many of the cuts, drawn at random, in the order in which they stand."""
    everything = list(cuts)
    chosen = random.Random(seed).sample(range(len(everything)), min(count, len(everything)))
    return CutSet.from_cuts(everything[number] for number in sorted(chosen))


def error_sums(utterances: list[Recognised]) -> dict[str, torch.Tensor]:
    """Errors and words of the reference, as numbers that ranks can add up."""
    errors = total_errors(utterances)
    return {"errors": torch.tensor(float(errors.total)), "words": torch.tensor(float(errors.words))}


def as_sentences(utterance: Recognised) -> tuple[str, str]:
    """What was said and what was recognised."""
    return " ".join(utterance.reference), " ".join(utterance.hypothesis)
