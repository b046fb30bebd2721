"""Competitors for training: the token sequences that a search finds besides the reference."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from transducer_gn.config.evaluation import DEFAULT_TOKENS_PER_FRAME
from transducer_gn.search.beam import BeamSearch, search_batch
from transducer_gn.search.hypotheses import Hypotheses


@dataclass(frozen=True)
class Competitors:
    """Up to N token sequences per utterance, best first, all different, none of them the reference.

    Attributes:
      tokens: [B, N, U] token ids; 0 beyond a length.
      lengths: [B, N] number of tokens; -1 where there is no sequence.
    """

    tokens: Tensor
    lengths: Tensor

    def with_references(self, references: Tensor, reference_lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens [B, 1 + N, U'] and lengths [B, 1 + N] with the references first, as prefix trees want them.

        Args:
          references: [B, R] token ids; reference_lengths: [B]
        """
        longest = max(references.shape[1], self.tokens.shape[2])
        first = functional.pad(references, (0, longest - references.shape[1]))[:, None]
        rest = functional.pad(self.tokens, (0, longest - self.tokens.shape[2]))
        return torch.cat([first, rest], dim=1), torch.cat([reference_lengths[:, None], self.lengths], dim=1)


@torch.no_grad()
def find_competitors(
    model,
    encoder_out: Tensor,
    frame_lengths: Tensor,
    references: Tensor,
    reference_lengths: Tensor,
    count: int,
    alpha: float,
    beam: int | None = None,
    max_tokens_per_frame: int = DEFAULT_TOKENS_PER_FRAME,
) -> Competitors:
    """The `count` best sequences of the beam search that are not the reference.

    The encoder output may be that of the training pass or computed for the purpose; no gradient flows. Waits for the
    device before the first frame, and once at the end to see how long the longest sequence is.

    Args:
      model: see `BeamSearch`.
      encoder_out: [B, T, D]; frame_lengths: [B]
      references: [B, R] token ids; anything beyond a length. reference_lengths: [B]
      beam: hypotheses kept per utterance; by default `count` + 1, so that `count` are left without the reference.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, not {count}")
    beam = count + 1 if beam is None else beam
    if beam <= count:
        raise ValueError(f"beam must exceed count = {count}, since the reference may be in the beam; it is {beam}")
    batch = len(encoder_out)
    if references.dim() != 2 or len(references) != batch or reference_lengths.shape != (batch,):
        raise ValueError(
            f"references and reference_lengths must be [{batch}, R] and [{batch}] to go with encoder_out "
            f"{list(encoder_out.shape)}; they are {list(references.shape)} and {list(reference_lengths.shape)}"
        )
    search = BeamSearch(model, beam, alpha, max_tokens_per_frame)
    found = search_batch(search, encoder_out, frame_lengths).best(beam)
    is_competitor = (found.scores > -torch.inf) & ~_equals(found, references, reference_lengths)
    # Competitors to the front, in their order.
    found = found.select((~is_competitor).long().argsort(dim=1, stable=True)[:, :count])
    return _trim(found, is_competitor.sum(1))


def _trim(found: Hypotheses, existing: Tensor) -> Competitors:
    """The first `existing` [B] hypotheses of each utterance, cut to the length of the longest. Waits for the device."""
    exists = torch.arange(found.lengths.shape[1], device=existing.device) < existing[:, None]
    lengths = found.lengths.where(exists, -1)
    longest, faulty = torch.stack([lengths.max().clamp(min=0), found.faulty.any().long()]).tolist()
    if faulty:
        found.check()
    tokens = found.tokens[:, :, :longest]
    within = torch.arange(longest, device=tokens.device) < lengths[:, :, None]
    return Competitors(tokens=tokens.where(within, 0), lengths=lengths)


def _equals(found: Hypotheses, references: Tensor, reference_lengths: Tensor) -> Tensor:
    """[B, N] whether a hypothesis is the reference."""
    longest = max(references.shape[1], found.tokens.shape[2])
    references = functional.pad(references, (0, longest - references.shape[1]))
    tokens = functional.pad(found.tokens, (0, longest - found.tokens.shape[2]))
    beyond = torch.arange(longest, device=tokens.device) >= reference_lengths[:, None]
    same_tokens = ((tokens == references[:, None]) | beyond[:, None]).all(2)
    return same_tokens & (found.lengths == reference_lengths[:, None])
