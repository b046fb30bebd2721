"""How good the model is now: loss and word error rate on a part of the dev set."""

from dataclasses import dataclass

import torch

from transducer_gn.config import Config, RecognitionConfig
from transducer_gn.data.batches import Batches, Inputs
from transducer_gn.data.prepared import PreparedData
from transducer_gn.data.tokenizer import Tokenizer
from transducer_gn.model.chunk import evaluation_chunk
from transducer_gn.recognition.error_rates import Recognised, total_errors
from transducer_gn.recognition.system import System
from transducer_gn.recognition.utterances import recognise_frames
from transducer_gn.training.clock import Clock
from transducer_gn.training.distributed import World
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
    """Validates on the first utterances of the dev parts, divided among ranks."""

    def __init__(self, config: Config, data: PreparedData, tokenizer: Tokenizer, world: World) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._world = world
        parts = data.parts("dev")
        share = max(1, config.training.validation_utterances // max(len(parts), 1))
        self._batches = [
            Batches(
                data.cuts(part).subset(first=share), tokenizer, config.data.batches, training=False,
                inputs=Inputs(config.model.front_end.framing), rank=world.rank, world_size=world.size,
            )
            for part in parts
        ]  # fmt: skip
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
        for batches in self._batches:
            for batch in batches:
                plan = Plan(batch.to(self._world.device), self.chunk, None, seed=0)
                # Encoded once, for the loss and for recognition.
                encoded = training_pass.encode(plan.batch, plan.chunk)
                found = training_pass.objective(*encoded, plan, weights, Clock(self._world.device)).sums
                utterances = recognise_frames(system, plan.batch, encoded, settings)
                found = dict(found) | error_sums(utterances)
                sums = {name: total + found[name].double().cpu() for name, total in sums.items()}
                sentences += [as_sentences(one) for one in utterances[: SENTENCES - len(sentences)]]
        training_pass.train()
        sums = self._world.sum(sums)
        wer = 100 * float(sums["errors"]) / max(float(sums["words"]), 1.0)
        return Validation({"wer": wer, **metrics(sums)}, sentences)


def error_sums(utterances: list[Recognised]) -> dict[str, torch.Tensor]:
    """Errors and words of the reference, as numbers that ranks can add up."""
    errors = total_errors(utterances)
    return {"errors": torch.tensor(float(errors.total)), "words": torch.tensor(float(errors.words))}


def as_sentences(utterance: Recognised) -> tuple[str, str]:
    """What was said and what was recognised."""
    return " ".join(utterance.reference), " ".join(utterance.hypothesis)
