"""How good the lists of a search are, for any predictor, by the size of its beam and by how many of it are taken.

Exact Z is out of reach where the predictor remembers all tokens. What can be said of a list without it: whether the
search found the reference, too; how much of the list's Z the reference holds, which is what the loss is made of; how
much the list has of a larger one's Z; and how few errors any hypothesis of the search has.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from transducer_gn.common.errors import NotFiniteError, UserError
from transducer_gn.config import RecognitionConfig
from transducer_gn.data.batches import Batch
from transducer_gn.lattice.interpolation import Interpolation
from transducer_gn.lattice.prefix_tree import build_prefix_tree
from transducer_gn.lattice.tree_lattice import list_scores, tree_lattice
from transducer_gn.recognition.error_rates import edit_distance
from transducer_gn.recognition.system import System
from transducer_gn.search.beam import search_together
from transducer_gn.search.competitors import pad_sequences
from transducer_gn.search.rules import SearchRules

# Of an utterance: what a search found, or its reference first and then what any of the searches found.
Sequences = list[list[int]]


@dataclass
class ListQuality:
    """The lists of one beam, of which the N best sequences are taken.

    Attributes:
        beam: hypotheses that the search keeps
        count: N, beside the reference
        found: for each utterance, whether the search found the reference, too
        shares: the reference's share of the list's Z
        covered: the list's share of the Z of all that any search found
        errors: fewest word errors of any hypothesis in the whole beam; all words where there is none
    """

    beam: int
    count: int
    found: list[bool] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    covered: list[float] = field(default_factory=list)
    errors: list[int] = field(default_factory=list)


def measure_lists(
    system: System, batches: Iterable[Batch], beams: Sequence[int], counts: Sequence[int]
) -> tuple[list[ListQuality], int]:
    """Lists of every beam and every N that it has room for, and the words of all references.

    UserError names a batch for which the model gives weights that are not finite.

    Args:
        system: what searches, at its alpha
        batches: on the system's device
        beams: hypotheses that searches keep; those that no N fits are left out
        counts: numbers of competitors
    """
    qualities = [ListQuality(beam, count) for beam in beams for count in counts if count < beam]
    words = 0
    for batch in batches:
        try:
            measure_batch(system, batch, qualities)
        except NotFiniteError as error:
            raise UserError(f"cannot measure the batch of {batch.ids[0]}: {error}") from error
        words += sum(len(text.split()) for text in batch.texts)
    return qualities, words


@torch.no_grad()
def measure_batch(system: System, batch: Batch, qualities: Sequence[ListQuality]) -> None:
    """Take in a batch."""
    chunk = system.chunk(RecognitionConfig())
    encoder_out, frame_lengths = system.model.encode(batch.features, batch.feature_lengths, chunk)
    beams = dict.fromkeys(quality.beam for quality in qualities)
    found = {beam: search(system, encoder_out, frame_lengths, beam) for beam in beams}
    union, places = together(batch, found)
    scores = raw_scores(system, union, encoder_out, frame_lengths)
    for row, reference in enumerate(text.split() for text in batch.texts):
        errors = [edit_distance(reference, system.tokenizer.decode(tokens).split()) for tokens in union[row]]
        for quality in qualities:
            # The reference, if the search found it, is one of the beam but no competitor.
            beam = places[quality.beam][row]
            own = [place for place in beam if place != 0]
            listed = scores[row, [0, *own[: quality.count]]].logsumexp(0)
            quality.found.append(0 in beam)
            quality.shares.append(math.exp(scores[row, 0] - listed))
            quality.covered.append(math.exp(listed - scores[row].logsumexp(0)))
            quality.errors.append(min((errors[place] for place in beam), default=len(reference)))


def search(system: System, encoder_out: Tensor, frame_lengths: Tensor, beam: int) -> list[Sequences]:
    """All hypotheses of a beam, best first, of encoder frames [B, T, D] with lengths [B], as training searches."""
    limit = system.config.competitors.max_tokens_per_frame
    rules = SearchRules(beam, system.alpha, limit, graph=system.config.search.graph == "auto")
    found = search_together(system.model, [(encoder_out, frame_lengths)], rules).best(beam)
    # Where every alignment meets a weight of 0 there is a sequence of score -inf, which stands for none.
    return [
        [sequence for sequence, score in zip(tokens, scores, strict=True) if score > -math.inf]
        for tokens, scores in zip(found.tokens, found.scores, strict=True)
    ]


def together(batch: Batch, found: Mapping[int, list[Sequences]]) -> tuple[list[Sequences], dict[int, list[list[int]]]]:
    """All sequences of each utterance, its reference first; and where those of each beam are among them, best first."""
    union: list[Sequences] = [
        [tokens[:length]] for tokens, length in zip(batch.tokens.tolist(), batch.token_lengths.tolist(), strict=True)
    ]
    places: dict[int, list[list[int]]] = {}
    for beam, hypotheses in found.items():
        places[beam] = []
        for own, listed in zip(union, hypotheses, strict=True):
            own += [sequence for sequence in listed if sequence not in own]
            places[beam].append([own.index(sequence) for sequence in listed])
    return union, places


def raw_scores(system: System, union: list[Sequences], encoder_out: Tensor, frame_lengths: Tensor) -> Tensor:
    """[B, S] raw scores of all sequences, -inf where an utterance has fewer.

    Args:
        union: sequences of each utterance, none of them twice
        encoder_out: [B, T, D]
        frame_lengths: [B]
    """
    tokens, lengths = pad_sequences(union, max(len(own) for own in union), encoder_out.device)
    tree = build_prefix_tree(tokens, lengths)
    outputs = system.model.predictor.unroll_tree(tree.parents, tree.tokens, tree.depths)
    inputs = system.model.joiner.lattice_inputs(encoder_out, frame_lengths, outputs)
    raw = list_scores(tree_lattice(inputs, tree), Interpolation(0.0)).raw
    assert raw is not None, "raw weights give raw scores"
    return raw


def quality_row(quality: ListQuality, words: int) -> list[str]:
    """The cells of one kind of list in a table."""
    count = len(quality.found)
    means = (sum(values) / count for values in (quality.found, quality.shares, quality.covered))
    cells = (f"{mean:.3f}" for mean in means)
    return [str(quality.beam), str(quality.count), *cells, f"{100 * sum(quality.errors) / max(words, 1):.2f}"]
