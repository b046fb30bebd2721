"""Competitors are the best of the beam search, in its order, without the reference, ready for a prefix tree."""

import math
from dataclasses import replace

import pytest
import search_oracles
import torch

from transducer_gn.config import CompetitorConfig
from transducer_gn.lattice.interpolation import Interpolation
from transducer_gn.lattice.prefix_tree import build_prefix_tree
from transducer_gn.search.competitors import Searched, find_competitors, find_competitors_together

ALPHA = 0.3
NORMALISATION = Interpolation(ALPHA)


def found_by_plain_search(table: torch.Tensor, frames: int, beam: int) -> list[list[int]]:
    """All sequences of a plain search with at most two tokens per frame."""
    logits = search_oracles.table_logits(table)
    return [list(tokens) for tokens, _, _ in search_oracles.plain_beam_search(logits, frames, beam, ALPHA, 2)]


def to_lists(competitors) -> list[list[list[int]]]:
    """Token sequences per utterance."""
    rows = zip(competitors.tokens.tolist(), competitors.lengths.tolist(), strict=True)
    return [[t[:n] for t, n in zip(tokens, lengths, strict=True) if n >= 0] for tokens, lengths in rows]


def padded(references: list[list[int]], filler: int) -> tuple[torch.Tensor, torch.Tensor]:
    """References [B, R] and lengths [B]."""
    longest = max(len(reference) for reference in references)
    rows = [reference + [filler] * (longest - len(reference)) for reference in references]
    return torch.tensor(rows, dtype=torch.long).view(len(rows), longest), torch.tensor([len(r) for r in references])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("filler", [0, 1])
def test_equal_the_plain_search_without_the_reference(seed, filler):
    torch.manual_seed(seed)
    table = torch.randn(6, 3, 3).double()
    model, encoder_out = search_oracles.table_model(table)
    lengths = [6, 4, 6, 5]
    found = [found_by_plain_search(table, frames, 6) for frames in lengths]
    # The best one, the last one, one that is not there although one of those found begins like it, and an empty one.
    references = [found[0][0], found[1][-1], found[2][1] + [1, 2], []]
    tokens, token_lengths = padded(references, filler)
    competitors = find_competitors(
        model,
        encoder_out.repeat(4, 1, 1),
        torch.tensor(lengths),
        tokens,
        token_lengths,
        CompetitorConfig(5, 6, 2),
        NORMALISATION,
    )
    wanted = [
        [tokens for tokens in sequences if tokens != reference][:5]
        for sequences, reference in zip(found, references, strict=True)
    ]
    assert to_lists(competitors) == wanted
    is_found = [reference in sequences for reference, sequences in zip(references, found, strict=True)]
    assert competitors.found.tolist() == is_found and is_found[:2] == [True, True]
    tree = build_prefix_tree(*competitors.with_references(tokens, token_lengths))
    assert tree.distinct.sum(1).tolist() == [1 + len(sequences) for sequences in wanted]


def test_batches_that_are_searched_together_get_what_they_get_alone():
    torch.manual_seed(3)
    table = torch.randn(7, 3, 3).double()
    model, encoder_out = search_oracles.table_model(table)
    batches = []
    for frames, references in ((5, [[1, 2], []]), (7, [[2]]), (3, [[1], [2], [1, 1]])):
        tokens, lengths = padded(references, 0)
        frame_lengths = torch.arange(frames, frames - len(references), -1)
        batches.append(Searched(encoder_out[:, :frames].repeat(len(references), 1, 1), frame_lengths, tokens, lengths))
    settings = CompetitorConfig(4, None, 2)
    together = find_competitors_together(model, batches, settings, NORMALISATION)
    for batch, found in zip(batches, together, strict=True):
        (alone,) = find_competitors_together(model, [batch], settings, NORMALISATION)
        assert all(torch.equal(value, vars(alone)[name]) for name, value in vars(found).items())


def test_there_may_be_fewer_than_asked_for_or_none():
    table = torch.tensor([0.0, 1.0, -math.inf]).double().expand(2, 3, 3)
    model, encoder_out = search_oracles.table_model(table)
    references, reference_lengths = padded([[1], [1], [], [1, 1]], 0)
    competitors = find_competitors(
        model,
        encoder_out.repeat(4, 1, 1),
        torch.tensor([1, 2, 0, 2]),
        references,
        reference_lengths,
        CompetitorConfig(3, None, 1),
        NORMALISATION,
    )
    assert [sorted(sequences) for sequences in to_lists(competitors)] == [[[]], [[], [1, 1]], [], [[], [1]]]
    assert competitors.lengths[2].tolist() == [-1, -1, -1]
    nothing_left = find_competitors(
        model,
        encoder_out,
        torch.tensor([0]),
        references[2:3],
        reference_lengths[2:3],
        CompetitorConfig(3),
        NORMALISATION,
    )
    assert nothing_left.tokens.shape == (1, 3, 0)


def test_an_utterance_without_any_possible_alignment_has_none():
    model, encoder_out = search_oracles.table_model(torch.full((2, 3, 3), -math.inf).double())
    references, reference_lengths = padded([[1]], 0)
    competitors = find_competitors(
        model, encoder_out, torch.tensor([2]), references, reference_lengths, CompetitorConfig(2), NORMALISATION
    )
    assert competitors.lengths.tolist() == [[-1, -1]]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"reference_lengths": torch.tensor([1, 1])}, "references and reference_lengths must be"),
    ],
)
def test_wrong_arguments_are_refused(arguments, sentence):
    model, encoder_out = search_oracles.table_model(torch.zeros(3, 3, 3).double())
    references, reference_lengths = padded([[1]], 0)
    defaults = {"references": references, "reference_lengths": reference_lengths}
    with pytest.raises(ValueError, match=sentence):
        find_competitors(
            model,
            encoder_out,
            torch.tensor([3]),
            **{**defaults, **arguments},
            settings=CompetitorConfig(2),
            interpolation=NORMALISATION,
        )


def test_an_utterance_of_faulty_weights_has_none_and_the_others_have_theirs():
    torch.manual_seed(0)
    table = torch.randn(5, 3, 3).double()
    table[4] = math.nan
    model, encoder_out = search_oracles.table_model(table)
    encoder_out = encoder_out[:, :4].repeat(3, 1, 1)
    references, lengths = padded([[1], [1], [1]], 0)
    settings = CompetitorConfig(3, 6, 2)
    sound = find_competitors(model, encoder_out, torch.tensor([4, 4, 3]), references, lengths, settings, NORMALISATION)
    encoder_out[1, 2] = 4  # the frame whose weights are not finite
    found = find_competitors(model, encoder_out, torch.tensor([4, 4, 3]), references, lengths, settings, NORMALISATION)
    lists = to_lists(sound)
    assert lists[1] and to_lists(found) == [lists[0], [], lists[2]]
    encoder_out[:, 0] = 4
    found = find_competitors(model, encoder_out, torch.tensor([4, 4, 3]), references, lengths, settings, NORMALISATION)
    assert to_lists(found) == [[], [], []]


def test_a_search_gone_astray_is_cut_to_the_length_that_is_allowed():
    # Every frame gives two tokens; the blank is the worst of labels.
    table = torch.tensor([-5.0, 1.0, 0.5]).expand(30, 3, 3).double()
    model, encoder_out = search_oracles.table_model(table)
    references, lengths = padded([[1, 2, 1], [1]], 0)
    settings = CompetitorConfig(4, 8, 2, max_length=1.5)
    arguments = encoder_out.repeat(2, 1, 1), torch.tensor([30, 30]), references, lengths
    free = find_competitors(model, *arguments, replace(settings, max_length=100.0), NORMALISATION)
    assert (free.lengths > 40).all() and not free.cut(lengths, replace(settings, max_length=100.0)).any()
    found = find_competitors(model, *arguments, settings, NORMALISATION)
    for own, all_of_them, limit in zip(to_lists(found), to_lists(free), (14, 11), strict=True):
        assert own and len(set(map(tuple, own))) == len(own)
        assert all(len(tokens) == limit for tokens in own)
        assert own[0] == all_of_them[0][:limit]
    assert torch.equal(found.cut(lengths, settings), found.lengths >= 0)
