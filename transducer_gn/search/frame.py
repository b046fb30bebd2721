"""One frame of the beam search: rounds of tokens, and the hypotheses that have taken their blank.

Within a frame, hypotheses of the beam are extended by at most S tokens, one per round. The hypotheses of a round are
all different, since a prefix has one parent only. Each of them takes its blank and is then *finished*; the same prefix
may finish in several rounds, over different alignments, and these are merged.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from transducer_gn.search.prefix_pool import NO_NODE
from transducer_gn.search.ranking import best_indices, kth_best


@dataclass(frozen=True)
class Round:
    """M hypotheses per utterance that have emitted the same number of tokens in this frame, best first.

    Attributes:
      scores: [B, M] log-sum over their alignments, before this frame's blank; -inf where there is no hypothesis.
      nodes: [B, M] number of the prefix.
      rows: [B, M] row of the prefix in the pool.
      lengths: [B, M] number of tokens.
      origins: [B, M] slot of the beam from which the hypothesis started in this frame.
      emitted: [B, M, S, 2] node and token of each round's extension since then; -1 for rounds to come.
    """

    scores: Tensor
    nodes: Tensor
    rows: Tensor
    lengths: Tensor
    origins: Tensor
    emitted: Tensor

    def narrow(self, width: int) -> "Round":
        """The first `width` hypotheses of each utterance."""
        return Round(**{name: tensor[:, :width] for name, tensor in vars(self).items()})

    def select(self, columns: Tensor) -> "Round":
        """The hypotheses `columns` [B, W]."""
        fields = {name: tensor.gather(1, columns) for name, tensor in vars(self).items() if name != "emitted"}
        index = columns[:, :, None, None].expand(-1, -1, *self.emitted.shape[2:])
        return Round(**fields, emitted=self.emitted.gather(1, index))


@dataclass(frozen=True)
class Finished:
    """Hypotheses that have taken the frame's blank: one column per hypothesis of each round so far, F in all.

    Attributes:
      scores: [B, F] log-sums over their alignments, those of merged hypotheses in the first one's column; -inf in
        the others.
      nodes: [B, F] number of the prefix; none in columns that were merged into another or that hold no hypothesis.
      sources: [B, F] column whose `hypotheses` tell how the best alignment went.
      hypotheses: all rounds so far side by side.
    """

    scores: Tensor
    nodes: Tensor
    sources: Tensor
    hypotheses: Round

    @classmethod
    def start(cls, beam: Round, scores: Tensor) -> "Finished":
        """The beam [B, K] after its blanks; `scores` [B, K] include them."""
        columns = torch.arange(scores.shape[1], device=scores.device).expand_as(scores)
        return cls(scores, beam.nodes.where(scores > -torch.inf, NO_NODE), columns, beam)

    def merge(self, new: Round, scores: Tensor) -> "Finished":
        """Add a round [B, M] after its blanks; `scores` [B, M] include them. Equal prefixes are merged by log-add."""
        exists = scores > -torch.inf
        same = (self.nodes[:, None] == new.nodes[:, :, None]) & exists[:, :, None]
        met, column = same.to(torch.uint8).max(-1)
        met = met.bool()
        width = self.scores.shape[1]
        own_column = torch.arange(width, width + scores.shape[1], device=scores.device).expand_as(scores)
        target = torch.where(met, column, own_column)
        before = self.scores.gather(1, column)
        merged = torch.where(met, torch.logaddexp(before, scores), scores)
        # Compared as all scores are, in single precision.
        earlier_is_better = scores.float() <= before.float()
        source = torch.where(met & earlier_is_better, self.sources.gather(1, column), own_column)
        hypotheses = {
            name: torch.cat([tensor, vars(new)[name]], dim=1) for name, tensor in vars(self.hypotheses).items()
        }
        return Finished(
            # A prefix meets at most one column and a column at most one prefix: no two write to the same place.
            scores=torch.cat([self.scores, torch.full_like(scores, -torch.inf)], dim=1).scatter(1, target, merged),
            nodes=torch.cat([self.nodes, new.nodes.where(exists & ~met, NO_NODE)], dim=1),
            sources=torch.cat([self.sources, own_column], dim=1).scatter(1, target, source),
            hypotheses=Round(**hypotheses),
        )

    def threshold(self, beam: int) -> Tensor:
        """[B, 1] score that a hypothesis has to exceed to be among the `beam` best; -inf if there are fewer."""
        return kth_best(self.scores, beam)

    def best(self, beam: int) -> Round:
        """The `beam` best, with their scores."""
        columns = best_indices(self.scores, beam)
        chosen = self.hypotheses.select(self.sources.gather(1, columns))
        return Round(**{**vars(chosen), "scores": self.scores.gather(1, columns)})
