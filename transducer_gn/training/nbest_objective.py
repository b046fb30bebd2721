"""Z over an N-best list: the reference and its competitors, evaluated at the points of their prefix tree."""

from dataclasses import dataclass

import torch
from torch import Tensor

from transducer_gn.config import ObjectiveConfig
from transducer_gn.lattice.interpolation import Interpolation
from transducer_gn.lattice.joint import LatticeInputs
from transducer_gn.lattice.log_sums import squared_log_sums
from transducer_gn.lattice.points import choose_points, point_factors
from transducer_gn.lattice.prefix_tree import PrefixTree
from transducer_gn.lattice.tree_lattice import ListScores, TreeLattice, list_scores, tree_lattice
from transducer_gn.training.expected_errors import ErrorTask, expected_errors
from transducer_gn.training.objective import Objective, Terms, combine
from transducer_gn.training.schedule import SchedulePoint


@dataclass(frozen=True)
class NBestTerms(Terms):
    """What an N-best list gives.

    Attributes:
        raw_scores: [B, S] raw scores of the list's sequences, the reference first and -inf for those that are not
            distinct; None where alpha is 1 and nobody asked for them
    """

    raw_scores: Tensor | None = None


def nbest_objective(
    inputs: LatticeInputs,
    tree: PrefixTree,
    point: SchedulePoint,
    settings: ObjectiveConfig | None = None,
    generator: torch.Generator | None = None,
    errors: ErrorTask | None = None,
) -> Objective:
    """The objective of a batch; for the arguments see `nbest_terms`."""
    terms = nbest_terms(inputs, tree, point, settings or ObjectiveConfig(), generator, errors)
    return combine(terms, point, inputs.frame_lengths)


def nbest_terms(
    inputs: LatticeInputs,
    tree: PrefixTree,
    point: SchedulePoint,
    settings: ObjectiveConfig,
    generator: torch.Generator | None = None,
    errors: ErrorTask | None = None,
) -> NBestTerms:
    """The terms of the objective.

    Args:
        inputs: with a prefix for each node of the tree
        tree: prefix tree of each utterance's reference (sequence 0) and competitors
        point: alpha, the regulariser's weight and the diagonal prior, now
        settings: how it is evaluated
        generator: of the random points of the regulariser, on the CPU; torch's default where None
        errors: of the tree's sequences, where their expectation is asked for
    """
    interpolation = Interpolation(point.alpha)
    posterior = None if errors is None else Interpolation(errors.settings.posterior_alpha(point.alpha))
    lattice = tree_lattice(inputs, tree, settings.negligible, posterior is not None and not posterior.is_raw)
    # Counted here: the host has nothing else to do before a device is done with the lattices.
    counted = None if errors is None else errors.count()
    scores = list_scores(lattice, interpolation, point.diagonal_prior, settings.backend, posterior)
    expected = None
    if counted is not None and scores.ranked is not None:
        expected = expected_errors(scores.ranked, tree.distinct, counted)
    return NBestTerms(
        numerator=scores.references,
        log_normaliser=None if scores.raw is None else scores.raw.logsumexp(1),
        reference_share=_reference_share(scores),
        regulariser=_regulariser(lattice, point.regulariser > 0, settings, generator),
        log_sums=torch.where(lattice.within, lattice.log_sums.detach(), 0),
        competitors=tree.distinct[:, 1:].sum(),
        errors=expected,
        raw_scores=scores.raw,
    )


@torch.no_grad()
def _reference_share(scores: ListScores) -> Tensor:
    """[B] the references' share of their lists; 1 where they are alone."""
    listed = scores.ranked if scores.raw is None else scores.raw
    if listed is None:
        return torch.ones_like(scores.references)
    return (listed[:, 0] - listed.logsumexp(1)).exp()


def _regulariser(
    lattice: TreeLattice, is_used: bool, settings: ObjectiveConfig, generator: torch.Generator | None
) -> Tensor:
    """The regulariser, a scalar.

    Where it is not used its value is still worth a look, if it costs nothing: on the references alone.
    """
    tree, inputs = lattice.tree, lattice.inputs
    factors = point_factors(tree, torch.ones_like(tree.in_reference) if is_used else tree.in_reference)
    of_references = lattice.squared_log_sums(factors)
    if not is_used or not lattice.has_competitors:
        return of_references
    others = torch.where(tree.in_reference, 0, factors)
    points = choose_points(tree, others, inputs.within, settings.regulariser_points, generator)
    return of_references + squared_log_sums(inputs, points)
