"""The lattices of a prefix tree's sequences: raw weights at each distinct prefix, and the scores of the sequences.

All V weights are computed for the references alone, whose local normalisation needs them; everybody else's score needs
two, the blank and the next token. Only who asks for competitors' scores under normalised weights pays for all V there.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from transducer_gn.lattice.arcs import ArcRows, lay_out_rows
from transducer_gn.lattice.diagonal_prior import with_diagonal_prior
from transducer_gn.lattice.interpolation import Interpolation
from transducer_gn.lattice.joint import LatticeInputs
from transducer_gn.lattice.prefix_tree import PrefixTree
from transducer_gn.lattice.recursion import sequence_scores
from transducer_gn.lattice.weights import full_weights, pair_weights

RAW = Interpolation(0.0)


@dataclass(frozen=True)
class TreeLattice:
    """Raw weights of R rows, of which the first are those of the references; B utterances with S sequences each.

    Attributes:
        inputs: what the weights were computed from
        tree: whose sequences these are; sequence 0 of each utterance is its reference
        rows: where the arcs of the tree's nodes are
        blank: [R, T] raw weights of the blanks
        token: [R, T] raw weights of the rows' tokens
        log_sums: [reference rows, T]
        competitor_log_sums: [competitor rows, T]; None where they were not asked for
    """

    inputs: LatticeInputs
    tree: PrefixTree
    rows: ArcRows
    blank: Tensor
    token: Tensor
    log_sums: Tensor
    competitor_log_sums: Tensor | None = None

    @property
    def has_competitors(self) -> bool:
        """Whether there is room for more sequences than the references."""
        return self.tree.nodes.shape[1] > 1

    @property
    def within(self) -> Tensor:
        """[reference rows, T] whether a frame is one of the row's utterance's own."""
        return self.inputs.within[self.rows.reference.utterances]

    def reference_arcs(self) -> tuple[Tensor, Tensor, Tensor]:
        """(token_weights [B, U, T], blank_weights [B, U + 1, T], log_sums [B, U + 1, T]) of the references."""
        path = self.rows.blank_row[self.tree.nodes[:, 0]]  # [B, U + 1]
        return self.token[path[:, :-1]], self.blank[path], self.log_sums[path]

    def raw_arcs(self) -> tuple[Tensor, Tensor]:
        """(token_weights [B * S, U, T], blank_weights [B * S, U + 1, T]) of all sequences."""
        nodes = self.tree.nodes
        token = self.token[self.rows.token_row[nodes[:, :, 1:]]]
        return token.flatten(0, 1), self.blank[self.rows.blank_row[nodes]].flatten(0, 1)

    def arcs(self, interpolation: Interpolation) -> tuple[Tensor, Tensor]:
        """As `raw_arcs`, with interpolated weights; only alpha 0 can do without the competitors' log-sums."""
        if interpolation.is_raw:
            return self.raw_arcs()
        if self.competitor_log_sums is None:
            raise ValueError("there are no log-sums of competitors; ask tree_lattice for them")
        log_sums = torch.cat([self.log_sums, self.competitor_log_sums])
        return interpolation.arcs(*self.raw_arcs(), log_sums[self.rows.blank_row[self.tree.nodes]].flatten(0, 1))

    def squared_log_sums(self, factors: Tensor) -> Tensor:
        """Sum over the references' points of factor x log_sum^2, from factors [P] of the tree's nodes."""
        squares = torch.where(self.within, self.log_sums.square(), 0).sum(1)
        return squares @ factors[self.rows.reference.nodes].to(squares.dtype)


def tree_lattice(
    inputs: LatticeInputs, tree: PrefixTree, negligible: float = 0.0, log_sums_of_all: bool = False
) -> TreeLattice:
    """Evaluate the lattices of a tree.

    Args:
        inputs: with a prefix for each node of the tree
        tree: of B utterances
        negligible: share of the largest gradient that all gradients left out of backward may add up to
        log_sums_of_all: compute all V weights for competitors, too
    """
    utterances, nodes = len(tree.nodes), len(tree.parents)
    if len(inputs.frames) != utterances:
        raise ValueError(f"frames must be those of the tree's {utterances} utterances, not of {len(inputs.frames)}")
    if len(inputs.prefixes) != nodes:
        raise ValueError(f"prefixes must be one for each of the tree's {nodes} nodes, not {len(inputs.prefixes)}")
    rows = lay_out_rows(tree)
    blank, token, log_sums = full_weights(inputs, rows.reference, negligible)
    of_competitors = log_sums[:0] if log_sums_of_all else None
    if len(rows.competitors.nodes):
        if log_sums_of_all:
            competitor_blank, competitor_token, of_competitors = full_weights(inputs, rows.competitors, negligible)
        else:
            competitor_blank, competitor_token = pair_weights(inputs, rows.competitors, negligible)
        blank, token = torch.cat([blank, competitor_blank]), torch.cat([token, competitor_token])
    return TreeLattice(inputs, tree, rows, blank, token, log_sums, of_competitors)


@dataclass(frozen=True)
class ListScores:
    """Scores of the sequences of a tree.

    Attributes:
        references: [B] interpolated scores of the references
        raw: [B, S] raw scores of all sequences, -inf for those that are not distinct; None where nobody needs them
        ranked: [B, S] the same under the weights that the list's posterior was asked for; None where it was not
    """

    references: Tensor
    raw: Tensor | None
    ranked: Tensor | None = None


def list_scores(
    lattice: TreeLattice,
    interpolation: Interpolation,
    diagonal_prior: float = 0.0,
    backend: str = "auto",
    posterior: Interpolation | None = None,
) -> ListScores:
    """Score the references under interpolated weights and all sequences under raw ones, in one recursion.

    Without competitors there is nothing to score at alpha 1 but the references.

    Args:
        lattice: of all sequences
        interpolation: of the references' weights
        diagonal_prior: strength of the prior on the alignments of the references
        backend: of the recursion
        posterior: of the weights under which all sequences are to be scored as well; None for no others than raw ones
    """
    tree, frame_lengths = lattice.tree, lattice.inputs.frame_lengths
    utterances, sequences, _ = tree.nodes.shape
    reference_lengths = tree.lengths[:, 0]
    token, blank = interpolation.arcs(*lattice.reference_arcs())
    token = with_diagonal_prior(token, diagonal_prior, reference_lengths, frame_lengths)
    kinds = _list_weights(interpolation, posterior, lattice.has_competitors)
    if not kinds:
        return ListScores(sequence_scores(token, blank, reference_lengths, frame_lengths, backend), None)
    arcs = [lattice.arcs(kind) for kind in kinds]
    scores = sequence_scores(
        torch.cat([token, *(own for own, _ in arcs)]),
        torch.cat([blank, *(own for _, own in arcs)]),
        torch.cat([reference_lengths, *[tree.lengths.flatten()] * len(kinds)]),
        torch.cat([frame_lengths, *[frame_lengths.repeat_interleave(sequences)] * len(kinds)]),
        backend,
    )
    lists = scores[utterances:].view(len(kinds), utterances, sequences).masked_fill(~tree.distinct, -math.inf)
    found = dict(zip(kinds, lists, strict=True))
    ranked = None if posterior is None else found[posterior]
    return ListScores(scores[:utterances], found.get(RAW), ranked)


def _list_weights(
    interpolation: Interpolation, posterior: Interpolation | None, has_competitors: bool
) -> list[Interpolation]:
    """Under which weights whole lists are to be scored, each of them once.

    At alpha 1 Z has no say; its raw scores are then there for a look only, and not where others are.
    """
    is_idle = interpolation.is_local and (posterior is not None or not has_competitors)
    kinds = [] if is_idle else [RAW]
    return kinds if posterior is None or posterior in kinds else [*kinds, posterior]
