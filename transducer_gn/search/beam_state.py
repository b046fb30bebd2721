"""The hypotheses of a search between two frames."""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from transducer_gn.search.hypotheses import Hypotheses
from transducer_gn.search.paths import TIME, TOKEN
from transducer_gn.search.prefix_pool import PrefixPool


@dataclass(frozen=True)
class Beam:
    """K hypotheses for each of B utterances between two frames, best first.

    Attributes:
      scores: [B, K] relative to the best; -inf in slots without a hypothesis.
      offsets: [B] score of the best, in double precision: sums over an hour do not fit single precision.
      rows: [B, K] row of each hypothesis in `prefixes`.
      lengths: [B, K] number of tokens since position 0 of `paths`.
      paths: [B, K, P, 3] see `transducer_gn.search.paths`.
      frames: [B] number of frames so far.
      faulty: [B] whether the model gave a weight that is NaN or infinitely large.
      prefixes: what is known about prefixes of the hypotheses.
    """

    scores: Tensor
    offsets: Tensor
    rows: Tensor
    lengths: Tensor
    paths: Tensor
    frames: Tensor
    faulty: Tensor
    prefixes: PrefixPool

    def __len__(self) -> int:
        return len(self.offsets)

    def tensors(self) -> dict[str, Tensor]:
        """All tensors but those of `prefixes`, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "prefixes"}

    def utterances(self, start: int, end: int) -> "Beam":
        """The beams of a range of utterances; they share memory with these."""
        parts = {name: tensor[start:end] for name, tensor in self.tensors().items()}
        return Beam(**parts, prefixes=self.prefixes.utterances(start, end))


def hypotheses_of(beam: Beam) -> Hypotheses:
    """The hypotheses of beams whose paths start at the root; if there are none, the empty one with score -inf."""
    lengths = torch.where(beam.scores > -torch.inf, beam.lengths, -1)
    lengths[:, 0].clamp_(min=0)
    return Hypotheses(
        tokens=beam.paths[:, :, 1:, TOKEN],
        lengths=lengths,
        scores=beam.scores + beam.offsets[:, None],
        times=beam.paths[:, :, 1:, TIME],
        faulty=beam.faulty,
    )
