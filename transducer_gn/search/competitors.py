"""Competitors for training: the token sequences that a search finds besides the reference."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from transducer_gn.config import CompetitorConfig
from transducer_gn.lattice.interpolation import Interpolation
from transducer_gn.search.beam import search_together
from transducer_gn.search.prefixes import SearchedModel
from transducer_gn.search.rules import SearchRules


@dataclass(frozen=True)
class Competitors:
    """Up to N token sequences per utterance, best first, all different, none of them the reference.

    Attributes:
        tokens: [B, N, U] token ids; 0 beyond a length
        lengths: [B, N] number of tokens; -1 where there is no sequence
    """

    tokens: Tensor
    lengths: Tensor

    def with_references(self, references: Tensor, reference_lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens [B, 1 + N, U'] and lengths [B, 1 + N] with the references first, as prefix trees want them.

        Args:
            references: [B, R] token ids
            reference_lengths: [B]
        """
        longest = max(references.shape[1], self.tokens.shape[2])
        first = functional.pad(references, (0, longest - references.shape[1]))[:, None]
        rest = functional.pad(self.tokens, (0, longest - self.tokens.shape[2]))
        return torch.cat([first, rest], dim=1), torch.cat([reference_lengths[:, None], self.lengths], dim=1)


@dataclass(frozen=True)
class Searched:
    """A batch to find competitors for.

    Attributes:
        encoder_out: [B, T, D] of the training pass or computed for the purpose; no gradient flows
        frame_lengths: [B]
        references: [B, R] token ids; anything beyond a length
        reference_lengths: [B]
    """

    encoder_out: Tensor
    frame_lengths: Tensor
    references: Tensor
    reference_lengths: Tensor

    def __post_init__(self) -> None:
        batch = len(self.encoder_out)
        if self.references.dim() != 2 or len(self.references) != batch or self.reference_lengths.shape != (batch,):
            raise ValueError(
                f"references and reference_lengths must be [{batch}, R] and [{batch}] to go with encoder_out "
                f"{list(self.encoder_out.shape)}; they are {list(self.references.shape)} and "
                f"{list(self.reference_lengths.shape)}"
            )

    def reference_lists(self) -> list[list[int]]:
        """The references without what lies beyond them. Synchronises with the device."""
        rows = zip(self.references.tolist(), self.reference_lengths.tolist(), strict=True)
        return [tokens[:length] for tokens, length in rows]


def find_competitors(
    model: SearchedModel,
    encoder_out: Tensor,
    frame_lengths: Tensor,
    references: Tensor,
    reference_lengths: Tensor,
    settings: CompetitorConfig,
    interpolation: Interpolation,
) -> Competitors:
    """The best sequences of the beam search that are not the reference.

    Args:
        model: a predictor and a joiner
        encoder_out: [B, T, D]
        frame_lengths: [B]
        references: [B, R] token ids; anything beyond a length
        reference_lengths: [B]
        settings: how many, and how to search
        interpolation: the normalisation to search with
    """
    batch = Searched(encoder_out, frame_lengths, references, reference_lengths)
    return find_competitors_together(model, [batch], settings, interpolation)[0]


@torch.no_grad()
def find_competitors_together(
    model: SearchedModel,
    batches: Sequence[Searched],
    settings: CompetitorConfig,
    interpolation: Interpolation,
    graph: bool = True,
) -> list[Competitors]:
    """Competitors of several batches, all of whose utterances are searched at once.

    Args:
        model: a predictor and a joiner
        batches: at least one
        settings: how many, and how to search
        interpolation: the normalisation to search with
        graph: see `transducer_gn.search.rules.SearchRules`
    """
    beam = settings.count + 1 if settings.beam is None else settings.beam
    rules = SearchRules(beam, interpolation.alpha, settings.max_tokens_per_frame, exact=True, graph=graph)
    frames = [(batch.encoder_out, batch.frame_lengths) for batch in batches]
    found = search_together(model, frames, rules).best(beam)
    competitors, start = [], 0
    for batch in batches:
        end = start + len(batch.encoder_out)
        rows = zip(found.tokens[start:end], found.scores[start:end], batch.reference_lists(), strict=True)
        chosen = [
            [own for own, score in zip(tokens, scores, strict=True) if score > -torch.inf and own != reference]
            for tokens, scores, reference in rows
        ]
        competitors.append(_padded([own[: settings.count] for own in chosen], settings.count, batch.references.device))
        start = end
    return competitors


def _padded(sequences: list[list[list[int]]], count: int, device: torch.device) -> Competitors:
    """At most `count` sequences of each utterance as tensors."""
    longest = max((len(tokens) for own in sequences for tokens in own), default=0)
    none = [0] * longest
    rows = [[tokens + none[len(tokens) :] for tokens in own] + [none] * (count - len(own)) for own in sequences]
    lengths = [[len(tokens) for tokens in own] + [-1] * (count - len(own)) for own in sequences]
    tokens = torch.tensor(rows, dtype=torch.long).view(len(rows), count, longest)
    return Competitors(tokens.to(device), torch.tensor(lengths, dtype=torch.long).view(len(rows), count).to(device))
