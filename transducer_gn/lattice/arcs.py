"""Which (prefix, token) pairs of a prefix tree must be evaluated, each once, as rows for `weights.py`.

Every prefix needs its blank, and every arc of the tree the weight of its token at the prefix it leaves. A row yields
one blank and one token, so that a prefix with several continuations needs a row for each. The references' own prefixes
and arcs, the *reference rows*, are kept apart from all others, the *competitor rows*: only they need log-sums.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from transducer_gn.common.units import BLANK
from transducer_gn.lattice.prefix_tree import PrefixTree


@dataclass(frozen=True)
class Rows:
    """Prefixes with one token each, sorted by utterance.

    Attributes:
        nodes: [R] node of each row's prefix
        tokens: [R] token asked for; blank where no token is needed
        utterances: [R] utterance of each row
        counts: number of rows of each utterance
    """

    nodes: Tensor
    tokens: Tensor
    utterances: Tensor
    counts: list[int]


@dataclass(frozen=True)
class ArcRows:
    """The rows of a tree, and where the arcs of its nodes are found in them.

    Attributes:
        reference: rows of the references' prefixes, in the order of their nodes
        competitors: rows of everything else, by utterance and depth, so that neighbours are active at similar times
        blank_row: [P] row with the blank of each node; reference rows first, then competitor rows
        token_row: [P] row with the token that leads to each node; 0 for roots, which no token leads to
    """

    reference: Rows
    competitors: Rows
    blank_row: Tensor
    token_row: Tensor


def lay_out_rows(tree: PrefixTree) -> ArcRows:
    """Lay out the rows of a tree. Waits for the device to learn their numbers."""
    in_reference = tree.in_reference
    utterances = tree.nodes.shape[0]
    reference_nodes = in_reference.nonzero()[:, 0]
    next_token = _next_reference_tokens(tree)
    reference = (reference_nodes, next_token[reference_nodes], tree.utterances[reference_nodes])
    nodes, children = _competitor_pairs(tree, in_reference)
    competitors = (nodes, torch.where(children >= 0, tree.tokens[children], BLANK), tree.utterances[nodes])
    counts = torch.stack([torch.bincount(x[2], minlength=utterances) for x in (reference, competitors)])
    reference_counts, competitor_counts = counts.tolist()

    blank_row, token_row = torch.zeros_like(tree.parents), torch.zeros_like(tree.parents)
    numbers = torch.arange(len(reference_nodes), device=nodes.device)
    blank_row[reference_nodes] = numbers
    # A reference node is led to by the row of its parent, which stands just before it.
    token_row[reference_nodes] = (numbers - 1).clamp(min=0)
    numbers = torch.arange(len(nodes), device=nodes.device) + len(reference_nodes)
    others = ~in_reference[nodes]
    # A node's rows all yield its blank; any of them will do.
    blank_row[nodes[others]] = numbers[others]
    token_row[children[children >= 0]] = numbers[children >= 0]
    return ArcRows(Rows(*reference, reference_counts), Rows(*competitors, competitor_counts), blank_row, token_row)


def _next_reference_tokens(tree: PrefixTree) -> Tensor:
    """[P]: the reference's next token after each of its prefixes; blank at its end and at other nodes."""
    result = torch.full_like(tree.tokens, BLANK)
    path = tree.nodes[:, 0]  # [B, U + 1], repeating the last node
    steps_on = path[:, 1:] != path[:, :-1]
    result[path[:, :-1][steps_on]] = tree.tokens[path[:, 1:][steps_on]]
    return result


def _competitor_pairs(tree: PrefixTree, in_reference: Tensor) -> tuple[Tensor, Tensor]:
    """(nodes, children), each [R]: the pairs outside the reference, by utterance and depth; child -1 for leaves."""
    others = (~in_reference).nonzero()[:, 0]
    is_parent = torch.zeros_like(in_reference)
    is_parent[tree.parents[others]] = True
    leaves = others[~is_parent[others]]
    nodes = torch.cat([tree.parents[others], leaves])
    children = torch.cat([others, torch.full_like(leaves, -1)])
    deepest = tree.nodes.shape[2]
    order = torch.argsort(tree.utterances[nodes] * (deepest + 1) + tree.depths[nodes], stable=True)
    return nodes[order], children[order]
