"""From a batch to its objective: encoder, search for competitors, prefix tree, predictor, objective.

No step reaches back, and nothing here names a device: all is where the model is.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transducer_gn.config import Config
from transducer_gn.data.batches import Batch
from transducer_gn.lattice.interpolation import Interpolation
from transducer_gn.lattice.prefix_tree import build_prefix_tree
from transducer_gn.model.chunk import Chunk
from transducer_gn.model.transducer import Transducer
from transducer_gn.search.competitors import Competitors, find_competitors
from transducer_gn.training.clock import Clock
from transducer_gn.training.exact_objective import exact_objective
from transducer_gn.training.objective import Objective, transducer_objective
from transducer_gn.training.schedule import Weights

PRECISIONS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Plan:
    """A batch with what was decided about it before its turn.

    Attributes:
      competitors: found ahead of time, or None to search now.
      seed: of everything random in this batch's pass.
    """

    batch: Batch
    chunk: Chunk
    competitors: Competitors | None
    seed: int


class TrainingPass(nn.Module):
    """The model and its objective as one module, so that gradients of several ranks can be added up around it."""

    def __init__(self, model: Transducer, config: Config):
        super().__init__()
        self.model = model
        self.config = config

    def forward(self, plan: Plan, weights: Weights, warmup: float, clock: Clock) -> Objective:
        """The objective of one batch, which is on the model's device."""
        with clock.part("encoder"):
            encoder_out, frame_lengths = self.encode(plan.batch, plan.chunk, warmup)
        return self.objective(encoder_out, frame_lengths, plan, weights, clock)

    def objective(
        self, encoder_out: Tensor, frame_lengths: Tensor, plan: Plan, weights: Weights, clock: Clock
    ) -> Objective:
        """What follows the encoder, whose output is [B, T, D] with frame_lengths [B]."""
        batch = plan.batch
        if self.config.normalisation.exact:
            with clock.part("objective"):
                return self._exact(encoder_out, frame_lengths, batch, weights)
        competitors = plan.competitors
        if competitors is None and weights.alpha < 1:
            with clock.part("search"):
                competitors = self.search(encoder_out, frame_lengths, batch, weights.alpha)
        with clock.part("objective"):
            return self._nbest(encoder_out, frame_lengths, batch, competitors, weights, plan.seed)

    def encode(self, batch: Batch, chunk: Chunk, warmup: float = 1.0) -> tuple[Tensor, Tensor]:
        """Encoder frames [B, T, D] and their numbers [B], in the configured precision."""
        precision = PRECISIONS[self.config.training.precision]
        device = batch.features.device.type
        with torch.autocast(device, precision, enabled=precision != torch.float32):
            return self.model.encoder(batch.features, batch.feature_lengths, chunk, warmup)

    def search(self, encoder_out: Tensor, frame_lengths: Tensor, batch: Batch, alpha: float) -> Competitors:
        """Competitors of a batch under the model as it is; no gradient flows.

        Args:
          encoder_out: [B, T, D]; frame_lengths: [B].
        """
        return find_competitors(
            self.model,
            encoder_out.detach(),
            frame_lengths,
            batch.tokens,
            batch.token_lengths,
            self.config.competitors,
            Interpolation(alpha),
        )

    def _nbest(
        self,
        encoder_out: Tensor,
        frame_lengths: Tensor,
        batch: Batch,
        competitors: Competitors | None,
        weights: Weights,
        seed: int,
    ) -> Objective:
        """The objective with Z over the reference and its competitors."""
        tokens, lengths = batch.tokens[:, None], batch.token_lengths[:, None]
        if competitors is not None:
            tokens, lengths = competitors.with_references(batch.tokens, batch.token_lengths)
        tree = build_prefix_tree(tokens, lengths)
        joiner = self.model.joiner
        outputs = self.model.predictor.unroll_tree(tree.parents, tree.tokens, tree.depths)
        return transducer_objective(
            joiner.project_encoder(encoder_out),
            frame_lengths,
            joiner.project_predictor(outputs),
            tree,
            joiner.output_weight,
            joiner.output_bias,
            alpha=weights.alpha,
            regulariser_weight=weights.regulariser,
            diagonal_prior=weights.diagonal_prior,
            settings=self.config.objective,
            generator=torch.Generator().manual_seed(seed),
        )

    def _exact(self, encoder_out: Tensor, frame_lengths: Tensor, batch: Batch, weights: Weights) -> Objective:
        """The objective with Z over all sequences."""
        joiner = self.model.joiner
        return exact_objective(
            joiner.project_encoder(encoder_out),
            frame_lengths,
            joiner.project_predictor(self.model.predictor.all_states()),
            batch.tokens,
            batch.token_lengths,
            joiner.output_weight,
            joiner.output_bias,
            alpha=weights.alpha,
            regulariser_weight=weights.regulariser,
            max_tokens_per_frame=self.config.normalisation.exact_tokens_per_frame,
        )
