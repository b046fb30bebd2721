"""The search for one utterance weighs no point twice, several frames in one call, and breaks ties as the rules say.

That it finds what the other searches find is tested with them (test_beam.py).
"""

import math

import pytest
import search_oracles
import torch

from transducer_gn.search.beam import beam_search


def calls_of_joiner(monkeypatch, table, beam, cap):
    """Shapes [prefixes, frames] of all calls of the joiner in a search over `table` [T, V, V], and what it finds."""
    model, encoder_out = search_oracles.table_model(table)
    shapes = []
    weigh = model.joiner.forward

    def forward(frames, prefixes):
        logits = weigh(frames, prefixes)
        shapes.append(list(logits.shape[:-1]))
        return logits

    monkeypatch.setattr(model.joiner, "forward", forward)
    found = beam_search(model, encoder_out, torch.tensor([len(table)]), beam, beam, 0.0, cap)
    return shapes, found.tokens[0]


def blank_table(frames):
    """Weights [T, 4, 4] under which nothing is emitted."""
    return torch.tensor([0.0, -9, -9, -9]).double().repeat(frames, 4, 1)


def test_frames_without_tokens_are_weighed_five_at_a_time(monkeypatch):
    assert calls_of_joiner(monkeypatch, blank_table(7), 1, 1) == ([[1, 5], [1, 2]], [[]])


def test_a_new_prefix_is_weighed_beyond_what_others_were_weighed_at(monkeypatch):
    table = blank_table(7)
    table[3, 0, 2] = 1
    assert calls_of_joiner(monkeypatch, table, 1, 1) == ([[1, 5], [1, 4]], [[2]])


def test_what_was_weighed_before_a_token_is_not_weighed_again(monkeypatch):
    table = blank_table(3)
    table[1, 0, 2] = 1
    assert calls_of_joiner(monkeypatch, table, 1, 1) == ([[1, 3], [1, 2]], [[2]])
    # With a beam of 2, the token comes at frame 1 and again at frame 2, where the prefix that it makes is known.
    table.fill_(-math.inf)
    table[:, 0, 0] = table[:, 2, 0] = 20
    table[1, 0, 2], table[2, 0, 2] = 40, 21
    assert calls_of_joiner(monkeypatch, table, 2, 1) == ([[1, 3], [1, 2]], [[2], []])


@pytest.mark.parametrize("small", [0.0, 1e-10])
def test_extensions_that_single_precision_cannot_tell_apart_go_by_their_tokens(small):
    weights = torch.tensor([0.0, 1, 1 + small, 1 + 2 * small], dtype=torch.double)
    table = torch.full((1, 4, 4), -math.inf).double()
    table[0, 0], table[0, 1:, 0] = weights, 0
    for beam in (1, 2):
        model, encoder_out = search_oracles.table_model(table)
        found = beam_search(model, encoder_out, torch.tensor([1]), beam, beam, 0.0, 1)
        wanted = search_oracles.plain_beam_search(search_oracles.table_logits(table), 1, beam, 0.0, 1)
        assert sorted(found.tokens[0]) == sorted(list(tokens) for tokens, _, _ in wanted) == [[1], [2]][:beam]


def test_weights_that_are_no_numbers_matter_only_where_the_search_comes_by():
    table = blank_table(5)
    # At frame 1, [2] is promising but its blank is not; what it would meet at frame 2 is weighed with it, in vain.
    table[1, 0, 2], table[1, 2, 0], table[2, 2] = 1, -20, math.nan
    model, encoder_out = search_oracles.table_model(table)
    assert beam_search(model, encoder_out, torch.tensor([5]), 1, 1, 0.0, 1).tokens == [[[]]]
    table[2, 0, 2] = math.nan
    with pytest.raises(ValueError, match="NaN or infinitely large"):
        beam_search(model, encoder_out, torch.tensor([5]), 1, 1, 0.0, 1)
