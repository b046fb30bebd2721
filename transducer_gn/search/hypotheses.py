"""What a search returns: on tensors for training, as lists for everybody else."""

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class NBest:
    """Distinct token sequences of each utterance, best first; at least one per utterance.

    Attributes:
      tokens: per utterance, per hypothesis, the token ids.
      scores: per utterance, per hypothesis, the log-sum over the alignments that the search kept.
      times: per utterance, per hypothesis, the frame at which each token was emitted in the best of these alignments.
    """

    tokens: list[list[list[int]]]
    scores: list[list[float]]
    times: list[list[list[int]]]


@dataclass(frozen=True)
class Hypotheses:
    """N token sequences of each of B utterances, best first, in tensors.

    Attributes:
      tokens: [B, N, U] token ids; anything beyond a length.
      lengths: [B, N] number of tokens; -1 where there is no hypothesis.
      scores: [B, N] log-sums in double precision; -inf where there is no hypothesis.
      times: [B, N, U] frame at which each token was emitted; anything beyond a length.
      faulty: [B] whether the model gave a weight that is NaN or infinitely large; the rest then means nothing.
    """

    tokens: Tensor
    lengths: Tensor
    scores: Tensor
    times: Tensor
    faulty: Tensor

    def check(self) -> None:
        """Raise ValueError if the model was at fault. Waits for the device."""
        faulty = self.faulty.nonzero().flatten().tolist()
        if faulty:
            raise ValueError(f"the model gives weights that are NaN or infinitely large for utterances {faulty}")

    def utterances(self, order: Tensor) -> "Hypotheses":
        """The utterances `order` [B']."""
        return Hypotheses(**{name: tensor[order] for name, tensor in vars(self).items()})

    def select(self, order: Tensor) -> "Hypotheses":
        """The hypotheses `order` [B, M] of each utterance."""
        positions = order[:, :, None].expand(-1, -1, self.tokens.shape[2])
        return Hypotheses(
            tokens=self.tokens.gather(1, positions),
            lengths=self.lengths.gather(1, order),
            scores=self.scores.gather(1, order),
            times=self.times.gather(1, positions),
            faulty=self.faulty,
        )

    def best(self, count: int, length_normalised: bool = False) -> "Hypotheses":
        """The `count` best, sorted by score or by score per label (tokens and a last blank)."""
        ranks = self.scores / (self.lengths + 1).clamp(min=1) if length_normalised else self.scores
        # Where there is no hypothesis a quotient says nothing; existing ones come first in any case.
        ranks = ranks.where(self.lengths >= 0, -torch.inf)
        by_rank = ranks.argsort(dim=1, descending=True, stable=True)
        exists = (self.lengths >= 0).gather(1, by_rank)
        return self.select(by_rank.gather(1, exists.long().argsort(dim=1, descending=True, stable=True))[:, :count])

    def to_lists(self) -> NBest:
        """The same as lists. Waits for the device."""
        lengths = self.lengths.tolist()
        return NBest(
            tokens=_trim(self.tokens.tolist(), lengths),
            scores=[
                [score for score, length in zip(*utterance, strict=True) if length >= 0]
                for utterance in zip(self.scores.tolist(), lengths, strict=True)
            ],
            times=_trim(self.times.tolist(), lengths),
        )


def concatenate_hypotheses(parts: list[Hypotheses]) -> Hypotheses:
    """The utterances of several, one after the other."""
    longest = max(part.tokens.shape[2] for part in parts)
    padded = [replace(part, tokens=_pad(part.tokens, longest), times=_pad(part.times, longest)) for part in parts]
    names = [field.name for field in fields(Hypotheses)]
    return Hypotheses(**{name: torch.cat([getattr(part, name) for part in padded]) for name in names})


def _pad(tensor: Tensor, length: int) -> Tensor:
    """`tensor` [B, N, U] with its last dimension filled up to `length`."""
    return torch.nn.functional.pad(tensor, (0, length - tensor.shape[2]), value=-1)


def _trim(padded: list[list[list[int]]], lengths: list[list[int]]) -> list[list[list[int]]]:
    """Cut every list to its length, and leave out those of length -1."""
    return [
        [values[:length] for values, length in zip(*utterance, strict=True) if length >= 0]
        for utterance in zip(padded, lengths, strict=True)
    ]
