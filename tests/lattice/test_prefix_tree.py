"""Invariant: a tree holds every distinct prefix of an utterance's sequences exactly once, and following a sequence's
nodes spells the sequence.
"""

import pytest
import torch

from transducer_gn.lattice.prefix_tree import build_prefix_tree


def random_sequences(seed, utterances=3, sequences=6, longest=5, vocabulary=3):
    """Few tokens and short sequences, so that prefixes, whole sequences and prefix relations repeat."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, vocabulary, (utterances, sequences, longest), generator=generator)
    lengths = torch.randint(-1, longest + 1, (utterances, sequences), generator=generator)
    lengths[:, 0] = torch.randint(0, longest + 1, (utterances,), generator=generator)
    return tokens, lengths


def spelled(tree, node):
    """The prefix that a node stands for, by following parents."""
    prefix = []
    while tree.parents[node] >= 0:
        prefix.insert(0, int(tree.tokens[node]))
        node = tree.parents[node]
    return tuple(prefix)


@pytest.mark.parametrize("seed", range(40))
def test_equals_a_set_of_prefixes(seed):
    tokens, lengths = random_sequences(seed)
    tree = build_prefix_tree(tokens, lengths)
    expected_nodes = []
    for b in range(len(tokens)):
        sequences = [
            tuple(t[:n].tolist()) if n >= 0 else None for t, n in zip(tokens[b], lengths[b].tolist(), strict=True)
        ]
        present = [s for s in sequences if s is not None]
        expected_nodes += [(b, prefix) for prefix in {s[:u] for s in present for u in range(len(s) + 1)}]
        for s, sequence in enumerate(sequences):
            assert tree.distinct[b, s] == (sequence is not None and sequence not in sequences[:s])
            if sequence is not None:
                assert tree.lengths[b, s] == len(sequence)
                for u in range(tokens.shape[2] + 1):
                    node = tree.nodes[b, s, u]
                    assert spelled(tree, node) == sequence[:u] and tree.utterances[node] == b
        for node in (tree.utterances == b).nonzero()[:, 0]:
            prefix = spelled(tree, node)
            assert tree.multiplicities[node] == sum(s[: len(prefix)] == prefix for s in set(present))
            assert tree.depths[node] == len(prefix)
            assert tree.in_reference[node] == (sequences[0][: len(prefix)] == prefix)
    nodes = [(int(tree.utterances[node]), spelled(tree, node)) for node in range(len(tree.parents))]
    assert sorted(nodes) == sorted(expected_nodes)
    assert nodes == sorted(nodes, key=lambda node: node[0])


@pytest.mark.parametrize("seed", range(10))
def test_parents_come_before_children_and_roots_are_blank(seed):
    tree = build_prefix_tree(*random_sequences(seed))
    assert (tree.parents < torch.arange(len(tree.parents))).all()
    roots = tree.parents < 0
    assert torch.equal(roots, tree.depths == 0) and (tree.tokens[roots] == 0).all() and (tree.tokens[~roots] > 0).all()


def test_ids_beyond_a_length_are_ignored():
    tokens, lengths = random_sequences(3)
    beyond = torch.arange(tokens.shape[2]) >= lengths[:, :, None]
    with_blanks = build_prefix_tree(tokens.masked_fill(beyond, 0), lengths)
    with_noise = build_prefix_tree(tokens.masked_fill(beyond, 7), lengths)
    for name in ("parents", "tokens", "nodes", "multiplicities", "distinct"):
        assert torch.equal(getattr(with_blanks, name), getattr(with_noise, name)), name


def test_an_utterance_does_not_depend_on_its_neighbours():
    tokens, lengths = random_sequences(5)
    together = build_prefix_tree(tokens, lengths)
    for b in range(len(tokens)):
        alone = build_prefix_tree(tokens[b : b + 1], lengths[b : b + 1])
        mine = together.utterances == b
        offset = int(mine.nonzero()[0])
        assert torch.equal(together.nodes[b] - offset, alone.nodes[0])
        assert torch.equal(together.tokens[mine], alone.tokens)


def test_empty_references_and_empty_batch():
    tree = build_prefix_tree(torch.zeros(2, 1, 0, dtype=torch.int64), torch.zeros(2, 1, dtype=torch.int64))
    assert tree.parents.tolist() == [-1, -1] and tree.utterances.tolist() == [0, 1]
    assert (
        len(build_prefix_tree(torch.zeros(0, 2, 3, dtype=torch.int64), torch.zeros(0, 2, dtype=torch.int64)).parents)
        == 0
    )


@pytest.mark.parametrize(
    ("tokens", "lengths", "message"),
    [
        ([[[1, 0, 2]]], [[3]], r"tokens holds a blank \(0\)"),
        ([[[1, -5, 2]]], [[2]], "tokens holds a blank"),
        ([[[1, 2, 2]]], [[4]], "lengths must be between 0 and 3"),
        ([[[1, 2, 2]]], [[-2]], "lengths must be between 0 and 3"),
        ([[[1, 2, 2], [1, 2, 2]]], [[-1, 3]], "every utterance needs a reference"),
        ([[[1, 2, 2]]], [[1], [1]], r"lengths must be integers \[1, 1\]"),
        ([[1, 2, 2]], [[1]], r"tokens must be integers \[B, S, U\]"),
        ([[[1.0, 2.0]]], [[1]], r"tokens must be integers \[B, S, U\]"),
    ],
)
def test_bad_input_is_named(tokens, lengths, message):
    with pytest.raises(ValueError, match=message):
        build_prefix_tree(torch.tensor(tokens), torch.tensor(lengths))
