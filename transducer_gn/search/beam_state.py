"""The hypotheses of a search between two frames."""

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor
from torch.nn import functional

from transducer_gn.search.hypotheses import Hypotheses
from transducer_gn.search.paths import EMPTY, NODE, TIME, TOKEN
from transducer_gn.search.prefix_pool import PrefixPool, concatenate_pools


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


def concatenate(beams: list[Beam]) -> Beam:
    """The beams of several, one utterance after the other; the result shares no memory with them."""
    longest = max(beam.paths.shape[2] for beam in beams)
    padded = [
        replace(beam, paths=functional.pad(beam.paths, (0, 0, 0, longest - beam.paths.shape[2]), value=EMPTY))
        for beam in beams
    ]
    tensors = {name: torch.cat([beam.tensors()[name] for beam in padded]) for name in padded[0].tensors()}
    return Beam(**tensors, prefixes=concatenate_pools([beam.prefixes for beam in beams]))


def split(beam: Beam) -> list[Beam]:
    """The beams of the utterances one by one; they share no memory, so that each can be dropped when it ends."""
    return [_copy(beam.utterances(row, row + 1)) for row in range(len(beam))]


def _copy(beam: Beam) -> Beam:
    return Beam(
        **{name: tensor.clone() for name, tensor in beam.tensors().items()},
        prefixes=concatenate_pools([beam.prefixes]),
    )


def settle(beam: Beam) -> tuple[Beam, list[list[int]], list[list[int]]]:
    """Take the tokens that all hypotheses of one utterance agree on out of its paths. Waits for the device.

    Returns:
      The beam whose paths start after these tokens; pairs of token and frame of the tokens taken out, and of those
      that follow them in the best hypothesis.
    """
    exists = (beam.scores > -torch.inf)[0]
    nodes = beam.paths[0, :, :, NODE]
    # Nodes have the same number exactly if all tokens up to there are the same.
    agreed = ((nodes == nodes[0]) | ~exists[:, None]).all(0) & (nodes[0] != EMPTY)
    settled = int(agreed.long().cumprod(0).sum()) - 1
    length = int(beam.lengths[0, 0]) if bool(exists[0]) else 0
    best = beam.paths[0, 0, 1 : length + 1, [TOKEN, TIME]].tolist()
    settled = min(settled, length)
    longest = int(beam.lengths[0].where(exists, 0).max())
    kept = replace(beam, paths=beam.paths[:, :, settled : longest + 1].clone(), lengths=beam.lengths - settled)
    return kept, best[:settled], best[settled:]
