"""From a batch to its objective: encoder, search for competitors, prefix tree, predictor, objective.

No step reaches back, and nothing here names a device: all is where the model is.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from transducer_gn.common.errors import NotFiniteError
from transducer_gn.config import Config
from transducer_gn.data.batches import Batch
from transducer_gn.data.spec_augment import spec_augment
from transducer_gn.lattice.interpolation import Interpolation
from transducer_gn.lattice.prefix_tree import build_prefix_tree
from transducer_gn.model.chunk import Chunk
from transducer_gn.model.predictor import FiniteStatePredictor
from transducer_gn.model.transducer import Transducer
from transducer_gn.search.competitors import Competitors, Searched, find_competitors_together
from transducer_gn.training.clock import Clock
from transducer_gn.training.exact_objective import exact_objective
from transducer_gn.training.expected_errors import ErrorCounter
from transducer_gn.training.nbest_objective import nbest_objective
from transducer_gn.training.not_finite import failed_objective
from transducer_gn.training.objective import Objective
from transducer_gn.training.reading import Reader
from transducer_gn.training.schedule import SchedulePoint

PRECISIONS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Plan:
    """A batch with what was decided about it before its turn.

    Attributes:
        batch: on the model's device
        chunk: what its frames see
        competitors: found ahead of time, or None to search now
        seed: of everything random in this batch's pass
    """

    batch: Batch
    chunk: Chunk
    competitors: Competitors | None
    seed: int


class TrainingPass(nn.Module):
    """The model and its objective as one module, so that gradients of several ranks can be added up around it.

    Args:
        errors: counts the errors of competitors; only training for minimum word error rate needs it
        reader: reads text beside the batches, if any is to be read
    """

    def __init__(
        self, model: Transducer, config: Config, errors: ErrorCounter | None = None, reader: Reader | None = None
    ) -> None:
        super().__init__()
        self.model = model
        self.config = config
        self._errors = errors
        self._reader = reader

    def forward(self, plan: Plan, point: SchedulePoint, warmup: float, clock: Clock) -> Objective:
        """The objective of one batch, which is on the model's device; one of NaN where weights are not finite."""
        try:
            with clock.part("encoder"):
                encoder_out, frame_lengths = self.encode(plan.batch, plan.chunk, warmup, plan.seed)
            objective = self.objective(encoder_out, frame_lengths, plan, point, clock)
            return self._with_reading(objective, plan, clock)
        except NotFiniteError as error:
            return failed_objective(self.model, error)

    def objective(
        self, encoder_out: Tensor, frame_lengths: Tensor, plan: Plan, point: SchedulePoint, clock: Clock
    ) -> Objective:
        """What follows the encoder.

        Args:
            encoder_out: [B, T, D] encoder frames
            frame_lengths: [B] number of frames of each utterance
            plan: of the batch
            point: alpha, the regulariser's weight and the diagonal prior, now
            clock: told how long its parts take
        """
        if self.config.normalisation.exact:
            with clock.part("objective"):
                return self._exact(encoder_out, frame_lengths, plan.batch, point)
        competitors = plan.competitors
        if competitors is None and point.needs_competitors:
            with clock.part("search"):
                competitors = self.search(encoder_out, frame_lengths, plan.batch, point.alpha)
        with clock.part("objective"):
            return self._nbest(encoder_out, frame_lengths, plan, competitors, point)

    def encode(self, batch: Batch, chunk: Chunk, warmup: float = 1.0, seed: int | None = None) -> tuple[Tensor, Tensor]:
        """Encoder frames [B, T, D] and their numbers [B], in the configured precision.

        Args:
            batch: features, or samples for a front end that is trained along
            chunk: what a frame sees
            warmup: share of the encoder's warm-up that is done
            seed: of the masks on what the front end makes of samples; None for no masks
        """
        precision = PRECISIONS[self.config.training.precision]
        masks, settings = None, self.config.data.batches.spec_augment
        if seed is not None and self.training and settings.enabled:
            draw = random.Random(seed)
            masks = partial(spec_augment, settings=settings, draw=draw)
        device = batch.features.device.type
        with torch.autocast(device, precision, enabled=precision != torch.float32):
            return self.model.encode(batch.features, batch.feature_lengths, chunk, warmup, masks)

    def search(self, encoder_out: Tensor, frame_lengths: Tensor, batch: Batch, alpha: float) -> Competitors:
        """Competitors of a batch under the model as it is; no gradient flows.

        Args:
            encoder_out: [B, T, D] encoder frames
            frame_lengths: [B] number of frames of each utterance
            batch: with the references
            alpha: interpolation weight of the search
        """
        return self.search_together([(encoder_out, frame_lengths)], [batch], alpha)[0]

    def search_together(
        self, encoded: Sequence[tuple[Tensor, Tensor]], batches: Sequence[Batch], alpha: float
    ) -> list[Competitors]:
        """Competitors of several batches from one search over all of their utterances; no gradient flows.

        Args:
            encoded: of each batch [B, T, D] encoder frames and [B] their numbers
            batches: with the references
            alpha: interpolation weight of the search
        """
        searched = [
            Searched(encoder_out.detach(), frame_lengths, batch.tokens, batch.token_lengths)
            for (encoder_out, frame_lengths), batch in zip(encoded, batches, strict=True)
        ]
        graph = self.config.search.graph == "auto"
        return find_competitors_together(self.model, searched, self.config.competitors, Interpolation(alpha), graph)

    def _with_reading(self, objective: Objective, plan: Plan, clock: Clock) -> Objective:
        """The objective of a batch and of what is read beside it."""
        if self._reader is None:
            return objective
        with clock.part("reading"):
            loss, entropy = self._reader.loss(self.model, plan.batch.token_lengths.sum(), plan.seed)
        sums = {**objective.sums, "reading": entropy, "readings": torch.ones_like(entropy)}
        return replace(objective, loss=objective.loss + loss, sums=sums)

    def _nbest(
        self,
        encoder_out: Tensor,
        frame_lengths: Tensor,
        plan: Plan,
        competitors: Competitors | None,
        point: SchedulePoint,
    ) -> Objective:
        """The objective on lists of the reference and its competitors."""
        tokens, lengths = plan.batch.tokens[:, None], plan.batch.token_lengths[:, None]
        if competitors is not None:
            tokens, lengths = competitors.with_references(plan.batch.tokens, plan.batch.token_lengths)
        errors = self._errors.task(tokens, lengths) if self._errors is not None and point.mwer > 0 else None
        tree = build_prefix_tree(tokens, lengths)
        outputs = self.model.predictor.unroll_tree(tree.parents, tree.tokens, tree.depths)
        inputs = self.model.joiner.lattice_inputs(encoder_out, frame_lengths, outputs)
        generator = torch.Generator().manual_seed(plan.seed)
        objective = nbest_objective(inputs, tree, point, self.config.objective, generator, errors)
        if competitors is None:
            return objective
        cut = competitors.cut(plan.batch.token_lengths, self.config.competitors)
        return replace(objective, sums={**objective.sums, "cut": cut.sum(), "found": competitors.found.sum()})

    def _exact(self, encoder_out: Tensor, frame_lengths: Tensor, batch: Batch, point: SchedulePoint) -> Objective:
        """The objective with Z over all sequences."""
        predictor = self.model.predictor
        assert isinstance(predictor, FiniteStatePredictor), "exact Z needs a finite number of states"
        inputs = self.model.joiner.lattice_inputs(encoder_out, frame_lengths, predictor.all_states())
        limit = self.config.normalisation.exact_tokens_per_frame
        return exact_objective(inputs, batch.tokens, batch.token_lengths, point, limit)
