"""How good the model is now: loss and word error rate on a part of the dev set."""

from dataclasses import dataclass

import kaldialign
import torch

from transducer_gn.config import Config
from transducer_gn.data.batches import Batches
from transducer_gn.data.prepared import PreparedData
from transducer_gn.data.tokenizer import Tokenizer
from transducer_gn.model.chunk import evaluation_chunk
from transducer_gn.model.transducer import Transducer
from transducer_gn.search.beam import beam_search
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

    def __init__(self, config: Config, data: PreparedData, tokenizer: Tokenizer, world: World):
        self._config = config
        self._tokenizer = tokenizer
        self._world = world
        parts = data.parts("dev")
        share = max(1, config.training.validation_utterances // max(len(parts), 1))
        self._batches = [
            Batches(
                data.cuts(part).subset(first=share), tokenizer, config.data.batches, training=False,
                rank=world.rank, world_size=world.size,
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
        sums = {name: torch.zeros((), dtype=torch.float64) for name in (*SUMS, "errors", "words")}
        sentences: list[tuple[str, str]] = []
        for batches in self._batches:
            for batch in batches:
                plan = Plan(batch.to(self._world.device), self.chunk, None, seed=0)
                encoded = training_pass.encode(plan.batch, plan.chunk)
                found = training_pass.objective(*encoded, plan, weights, Clock(self._world.device)).sums
                texts = self._recognise(training_pass.model, *encoded, weights.alpha)
                found = dict(found) | self._errors(batch.texts, texts)
                sums = {name: total + found[name].double().cpu() for name, total in sums.items()}
                sentences += list(zip(batch.texts, texts, strict=True))[: SENTENCES - len(sentences)]
        training_pass.train()
        sums = self._world.sum(sums)
        wer = 100 * float(sums["errors"]) / max(float(sums["words"]), 1.0)
        return Validation({"wer": wer, **metrics(sums)}, sentences)

    def _recognise(
        self, model: Transducer, encoder_out: torch.Tensor, frame_lengths: torch.Tensor, alpha: float
    ) -> list[str]:
        """Texts from encoder frames [B, T, D] and their numbers [B]."""
        found = beam_search(
            model,
            encoder_out,
            frame_lengths,
            beam=self._config.training.validation_beam,
            nbest=1,
            alpha=alpha,
            max_tokens_per_frame=self._config.searched_tokens_per_frame(),
        )
        return [self._tokenizer.decode(hypotheses[0]) for hypotheses in found.tokens]

    def _errors(self, references: list[str], hypotheses: list[str]) -> dict[str, torch.Tensor]:
        errors = sum(
            kaldialign.edit_distance(reference.split(), hypothesis.split())["total"]
            for reference, hypothesis in zip(references, hypotheses, strict=True)
        )
        words = sum(len(reference.split()) for reference in references)
        return {"errors": torch.tensor(float(errors)), "words": torch.tensor(float(words))}
