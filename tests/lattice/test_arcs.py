"""Invariant: every arc of every sequence is in the row of its prefix and token, and no pair is evaluated twice."""

import pytest
import torch
from lattice.test_prefix_tree import random_sequences

from transducer_gn.lattice.arcs import lay_out_rows
from transducer_gn.lattice.prefix_tree import build_prefix_tree


@pytest.mark.parametrize("seed", range(30))
def test_rows_hold_the_arcs_of_all_sequences(seed):
    tokens, lengths = random_sequences(seed)
    tree = build_prefix_tree(tokens, lengths)
    rows = lay_out_rows(tree)
    nodes = torch.cat([rows.reference.nodes, rows.competitors.nodes])
    asked = torch.cat([rows.reference.tokens, rows.competitors.tokens])
    for b, s in (lengths >= 0).nonzero().tolist():
        for u in range(int(lengths[b, s]) + 1):
            node = tree.nodes[b, s, u]
            assert nodes[rows.blank_row[node]] == node
            if u > 0:
                row = rows.token_row[node]
                assert nodes[row] == tree.parents[node] and asked[row] == tokens[b, s, u - 1]
    pairs = list(zip(nodes.tolist(), asked.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    with_rows = {node for node, token in pairs}
    assert with_rows == set(range(len(tree.parents)))


@pytest.mark.parametrize("seed", range(10))
def test_rows_are_sorted_by_utterance_and_counted(seed):
    tree = build_prefix_tree(*random_sequences(seed))
    rows = lay_out_rows(tree)
    for part in (rows.reference, rows.competitors):
        utterances = tree.utterances[part.nodes].tolist()
        assert utterances == sorted(utterances)
        assert part.counts == [utterances.count(b) for b in range(3)]
    # Competitor rows of an utterance go by depth.
    keys = [(int(tree.utterances[n]), int(tree.depths[n])) for n in rows.competitors.nodes]
    assert keys == sorted(keys)


def test_reference_rows_follow_the_reference():
    tokens = torch.tensor([[[3, 1, 2], [3, 2, 2]], [[4, 9, 9], [5, 5, 5]]])
    tree = build_prefix_tree(tokens, torch.tensor([[3, 3], [1, -1]]))
    rows = lay_out_rows(tree)
    assert rows.reference.tokens.tolist() == [3, 1, 2, 0, 4, 0]
    assert rows.reference.counts == [4, 2]
    # After 3: the competitor's 2 at the reference's own prefix, then its last 2, then its leaf.
    assert rows.competitors.tokens.tolist() == [2, 2, 0] and rows.competitors.counts == [3, 0]
