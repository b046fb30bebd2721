"""Competitors for training: the token sequences that a search finds besides the reference."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from transducer_gn.common.errors import NotFiniteError
from transducer_gn.config import CompetitorConfig
from transducer_gn.lattice.interpolation import Interpolation
from transducer_gn.search.beam import search_together
from transducer_gn.search.hypotheses import NBest
from transducer_gn.search.prefixes import SearchedModel
from transducer_gn.search.rules import SearchRules

# For who does not train: no competitor is cut for want of memory.
UNCUT = 1e6


@dataclass(frozen=True)
class Competitors:
    """Up to N token sequences per utterance, best first, all different, none of them the reference.

    None is longer than `CompetitorConfig.longest` allows.

    Attributes:
        tokens: [B, N, U] token ids; 0 beyond a length
        lengths: [B, N] number of tokens; -1 where there is no sequence
        found: [B] whether the search found the reference, too: a list without it says little about the next best
    """

    tokens: Tensor
    lengths: Tensor
    found: Tensor

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

    def cut(self, reference_lengths: Tensor, settings: CompetitorConfig) -> Tensor:
        """[B, N] whether a sequence is as long as is allowed, and so most likely cut.

        Args:
            reference_lengths: [B]
            settings: with the limit
        """
        longest = (settings.max_length * reference_lengths.double()).long() + settings.longest(0)
        return self.lengths >= longest[:, None]


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

    An utterance for which the model gives weights that are not finite has no competitors; its own objective will
    notice.

    Args:
        model: a predictor and a joiner
        batches: at least one
        settings: how many, and how to search
        interpolation: the normalisation to search with
        graph: see `transducer_gn.search.rules.SearchRules`
    """
    beam = settings.count + 1 if settings.beam is None else settings.beam
    rules = SearchRules(beam, interpolation.alpha, settings.max_tokens_per_frame, graph=graph)
    found = _search_sound(model, [(batch.encoder_out, batch.frame_lengths) for batch in batches], rules).best(beam)
    competitors, start = [], 0
    for batch in batches:
        end = start + len(batch.encoder_out)
        references = batch.reference_lists()
        lists = [
            [own for own, score in zip(tokens, scores, strict=True) if score > -torch.inf]
            for tokens, scores in zip(found.tokens[start:end], found.scores[start:end], strict=True)
        ]
        pairs = list(zip(lists, references, strict=True))
        chosen = [_chosen(sequences, reference, settings) for sequences, reference in pairs]
        is_found = torch.tensor([reference in sequences for sequences, reference in pairs])
        device = batch.references.device
        competitors.append(Competitors(*pad_sequences(chosen, settings.count, device), is_found.to(device)))
        start = end
    return competitors


def _search_sound(model: SearchedModel, batches: list[tuple[Tensor, Tensor]], rules: SearchRules) -> NBest:
    """What a search finds; nothing for utterances whose weights are not finite, without which it is made once more.

    Args:
        model: a predictor and a joiner
        batches: for each [B, T, D] frames and [B] their numbers
        rules: of the search
    """
    try:
        return search_together(model, batches, rules)
    except NotFiniteError as error:
        faulty = set(error.utterances)
    count = sum(len(lengths) for _, lengths in batches)
    tokens: list[list[list[int]]] = [[[]] for _ in range(count)]
    scores = [[-torch.inf] for _ in range(count)]
    rest, sound, start = [], [], 0
    for encoder_out, lengths in batches:
        rows = [row for row in range(len(lengths)) if start + row not in faulty]
        if rows:
            rest.append((encoder_out[rows], lengths[rows]))
            sound += [start + row for row in rows]
        start += len(lengths)
    if rest:
        found = search_together(model, rest, rules)
        for row, own_tokens, own_scores in zip(sound, found.tokens, found.scores, strict=True):
            tokens[row], scores[row] = own_tokens, own_scores
    return NBest(tokens, scores, times=tokens)


def _chosen(sequences: list[list[int]], reference: list[int], settings: CompetitorConfig) -> list[list[int]]:
    """The first of an utterance's sequences, cut to the length that is allowed: distinct, and not the reference.

    One that is too long is cut rather than left out: where all are too long, the objective would else have nothing
    to push down, and the search would stay astray.
    """
    longest = settings.longest(len(reference))
    distinct = dict.fromkeys(tuple(tokens[:longest]) for tokens in sequences if tokens != reference)
    return [list(tokens) for tokens in distinct][: settings.count]


def pad_sequences(lists: Sequence[Sequence[list[int]]], count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Tokens [B, count, U] and lengths [B, count] of lists of sequences; -1 and zeros where a list has fewer."""
    longest = max((len(tokens) for own in lists for tokens in own), default=0)
    none = [0] * longest
    rows = [[tokens + none[len(tokens) :] for tokens in own] + [none] * (count - len(own)) for own in lists]
    lengths = [[len(tokens) for tokens in own] + [-1] * (count - len(own)) for own in lists]
    tokens = torch.tensor(rows, dtype=torch.long).view(len(rows), count, longest)
    sizes = torch.tensor(lengths, dtype=torch.long).view(len(rows), count)
    return tokens.to(device), sizes.to(device)


def longest_competitors(reference_lengths: Tensor, settings: CompetitorConfig, vocab_size: int) -> Competitors:
    """Competitors that need as much memory as any can: as many and as long as is allowed, without a common beginning.

    Args:
        reference_lengths: [B]
        settings: how many, and how long
        vocab_size: V
    """
    lengths = torch.tensor([settings.longest(length) for length in reference_lengths.tolist()])
    shape = (len(lengths), settings.count, int(lengths.max()) if len(lengths) else 0)
    tokens = torch.randint(1, vocab_size, shape, generator=torch.Generator().manual_seed(0))
    device, found = reference_lengths.device, torch.zeros(len(lengths), dtype=torch.bool)
    return Competitors(tokens.to(device), lengths[:, None].expand(shape[:2]).to(device), found.to(device))
