"""The objective of the paper: from locally to globally normalised, by the interpolation weight alpha.

For one utterance x with reference z, competitors H, raw weights f = exp(logits) and their local sums Z_l:

    (1 - alpha) log Z(x)  -  log sum over alignments of z of prod f / Z_l^alpha  +  weight x regulariser

    Z(x)         the sum over {z} + H of the sum over alignments of prod f  (the N-best normaliser)
    regulariser  frames x mean of (log Z_l)^2 over all points of all these sequences' lattices

Everything is summed over utterances, so that a batch divided among machines has the same gradient.
alpha = 1 is the ordinary Transducer loss and needs no competitors.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from transducer_gn.config import ObjectiveConfig
from transducer_gn.lattice.arcs import ArcRows, lay_out_rows
from transducer_gn.lattice.log_sums import Points, squared_log_sums
from transducer_gn.lattice.prefix_tree import PrefixTree
from transducer_gn.lattice.recursion import sequence_scores
from transducer_gn.lattice.weights import full_weights, pair_weights

# How much of a token is heard, on average, when the diagonal prior expects it.
HEARD_SHARE = 0.7

# What an objective reports sums of; `metrics` makes values of them.
SUMS = ("loss", "numerator", "log_normaliser", "regulariser", "reference_share", "competitors", "frames", "utterances")


@dataclass(frozen=True)
class Objective:
    """The loss of a batch and what it is made of; scalars, all but `loss` without gradient.

    Attributes:
      loss: to minimise; the sum over utterances, regulariser included.
      sums: sums over the batch, by name, that can be added up over batches and ranks: see `metrics`.
      log_sums: those at the points of the references' lattices, to look at their distribution; 0 where there is none.
    """

    loss: Tensor
    sums: Mapping[str, Tensor]
    log_sums: Tensor

    def metrics(self) -> dict[str, float]:
        """Values to look at; waits for the device."""
        return metrics(self.sums)


def metrics(sums: Mapping[str, Tensor]) -> dict[str, float]:
    """Per-frame or per-utterance values from sums over one or more batches.

    Returns:
      loss, numerator, log_normaliser: per frame; regulariser: mean of log_sum^2, unweighted; reference_share: mean
      over utterances of the reference's share of Z (at 1, competitors have become useless and nothing is learnt);
      competitors: mean number of distinct competitors.
    """
    names = list(sums)
    values = dict(zip(names, torch.stack([sums[name].double() for name in names]).tolist(), strict=True))
    frames, utterances = max(values["frames"], 1.0), max(values["utterances"], 1.0)
    per_frame = ("loss", "numerator", "log_normaliser", "regulariser")
    return {name: values[name] / frames for name in per_frame} | {
        name: values[name] / utterances for name in ("reference_share", "competitors")
    }


def transducer_objective(
    frames: Tensor,
    frame_lengths: Tensor,
    prefixes: Tensor,
    tree: PrefixTree,
    weight: Tensor,
    bias: Tensor,
    *,
    alpha: float,
    regulariser_weight: float = 0.0,
    diagonal_prior: float = 0.0,
    settings: ObjectiveConfig | None = None,
    generator: torch.Generator | None = None,
) -> Objective:
    """The objective of a batch.

    Args:
      frames: [B, T, J] projected encoder frames; frame_lengths: [B].
      prefixes: [P, J] projected predictor output of each node of the tree.
      tree: prefix tree of each utterance's reference (sequence 0) and competitors.
      weight: [V, J] and bias: [V] of the joiner's output layer.
      alpha: interpolation weight, 1 = local to 0 = global.
      regulariser_weight: what the regulariser is multiplied by, now.
      diagonal_prior: strength of the prior on the alignments of the numerator, see `diagonal_penalties`.
      generator: of the random points of the regulariser, on the CPU; torch's default where None.
    """
    settings = settings or ObjectiveConfig()
    _check(frames, frame_lengths, prefixes, tree, alpha)
    rows = lay_out_rows(tree)
    frame_counts = frame_lengths.tolist()
    lattice = _evaluate_rows(frames, frame_counts, prefixes, rows, weight, bias, settings)
    numerator, raw_scores = _score_sequences(
        lattice, tree, rows, frame_lengths, alpha, diagonal_prior, settings.backend
    )
    normaliser = raw_scores.logsumexp(1)
    loss = ((1 - alpha) * normaliser - numerator).sum()

    regularise = regulariser_weight > 0
    # Without a regulariser its value is still worth a look, where it costs nothing: on the reference alone.
    factors = _point_factors(tree, torch.ones_like(tree.in_reference) if regularise else tree.in_reference)
    regulariser = _reference_log_sums(lattice, tree, rows, frame_lengths, factors)
    if regularise:
        others = torch.where(tree.in_reference, 0, factors)
        points = _choose_points(tree, others, frame_lengths, frames.shape[1], settings.regulariser_points, generator)
        points = Points(points.frames, points.prefixes, points.factors.to(frames.dtype))
        regulariser = regulariser + squared_log_sums(frames, prefixes, weight, bias, points)
        loss = loss + regulariser_weight * regulariser
    sums = _sums(loss, numerator, normaliser, raw_scores, regulariser, tree, frame_lengths)
    return Objective(loss, sums, lattice.log_sums.detach())


@dataclass(frozen=True)
class _Lattice:
    """Raw weights of all rows, reference rows first: blank and token [R, T]; log_sums [reference rows, T]."""

    blank: Tensor
    token: Tensor
    log_sums: Tensor


def _evaluate_rows(
    frames: Tensor,
    frame_counts: list[int],
    prefixes: Tensor,
    rows: ArcRows,
    weight: Tensor,
    bias: Tensor,
    settings: ObjectiveConfig,
) -> _Lattice:
    """All V weights on reference rows, two of them on competitor rows."""

    def evaluate(function, part):
        own = prefixes.index_select(0, part.nodes)
        return function(frames, frame_counts, own, part.counts, part.tokens, weight, bias, settings.negligible)

    blank, token, log_sums = evaluate(full_weights, rows.reference)
    if len(rows.competitors.nodes):
        competitor_blank, competitor_token = evaluate(pair_weights, rows.competitors)
        blank, token = torch.cat([blank, competitor_blank]), torch.cat([token, competitor_token])
    return _Lattice(blank, token, log_sums)


def _score_sequences(
    lattice: _Lattice,
    tree: PrefixTree,
    rows: ArcRows,
    frame_lengths: Tensor,
    alpha: float,
    diagonal_prior: float,
    backend: str,
) -> tuple[Tensor, Tensor]:
    """(numerator [B], raw scores [B, S]); the raw score of a sequence that is not distinct is -inf.

    One recursion serves all: the references under interpolated weights, then all sequences under raw ones.
    """
    utterances, sequences, steps = tree.nodes.shape
    log_sums = alpha * lattice.log_sums
    path = rows.blank_row[tree.nodes[:, 0]]  # [B, U + 1] reference rows
    interpolated_blank = (lattice.blank[: len(log_sums)] - log_sums)[path]
    interpolated_token = (lattice.token[: len(log_sums)] - log_sums)[path[:, :-1]]
    if diagonal_prior > 0:
        places = diagonal_penalties(*interpolated_token.shape[1:], tree.lengths[:, 0], frame_lengths)
        interpolated_token = interpolated_token - diagonal_prior * places
    raw_blank = lattice.blank[rows.blank_row[tree.nodes]].flatten(0, 1)
    raw_token = lattice.token[rows.token_row[tree.nodes[:, :, 1:]]].flatten(0, 1)
    scores = sequence_scores(
        torch.cat([interpolated_token, raw_token]),
        torch.cat([interpolated_blank, raw_blank]),
        torch.cat([tree.lengths[:, 0], tree.lengths.flatten()]),
        torch.cat([frame_lengths, frame_lengths.repeat_interleave(sequences)]),
        backend=backend,
    )
    raw_scores = scores[utterances:].view(utterances, sequences)
    return scores[:utterances], raw_scores.masked_fill(~tree.distinct, -math.inf)


def diagonal_penalties(tokens: int, frames: int, token_lengths: Tensor, frame_lengths: Tensor) -> Tensor:
    """[B, U, T]: squared distance of each frame from the place of each token, in lengths of the utterance.

    Places are those of tokens that share out an utterance evenly, each at the time when most of it has been heard.

    Args:
      token_lengths, frame_lengths: [B].
    """
    device = frame_lengths.device
    places = (torch.arange(tokens, device=device) + HEARD_SHARE) / token_lengths.clamp(min=1)[:, None]
    times = (torch.arange(frames, device=device) + 0.5) / frame_lengths.clamp(min=1)[:, None]
    return (times[:, None] - places[:, :, None]).square()


def _reference_log_sums(
    lattice: _Lattice, tree: PrefixTree, rows: ArcRows, frame_lengths: Tensor, factors: Tensor
) -> Tensor:
    """The reference rows' part of the regulariser; factors: [P]."""
    nodes = rows.reference.nodes
    utterances = tree.utterances[nodes]
    valid = torch.arange(lattice.log_sums.shape[1], device=nodes.device) < frame_lengths[utterances, None]
    squares = torch.where(valid, lattice.log_sums.square(), 0).sum(1)
    return squares @ factors[nodes].to(squares.dtype)


def _point_factors(tree: PrefixTree, counted: Tensor) -> Tensor:
    """[P]: what a node's points count for in the regulariser, `frames x mean over the points of all sequences`.

    A node counts as often as sequences run through it. A sequence of u tokens has (u + 1) x frames points, so that
    the number of frames cancels out.

    Args:
      counted: [P] whether the node counts at all.
    """
    counts = torch.where(counted, tree.multiplicities, 0).double()
    totals = counts.new_zeros(tree.nodes.shape[0]).index_add_(0, tree.utterances, counts)
    return counts / totals[tree.utterances]


def _choose_points(
    tree: PrefixTree,
    factors: Tensor,
    frame_lengths: Tensor,
    frames: int,
    number: int | Literal["all"],
    generator: torch.Generator | None,
) -> Points:
    """Points of all nodes with factors: every one, or a random sample of the same expectation.

    Args:
      factors: [P], 0 where a node is not wanted; frames: T of the padded batch.
    """
    if number == "all":
        within = torch.arange(frames, device=factors.device) < frame_lengths[tree.utterances, None]
        nodes, at = (within & (factors > 0)[:, None]).nonzero(as_tuple=True)
        return Points(tree.utterances[nodes] * frames + at, nodes, factors[nodes])
    return _sample_points(tree, factors, frame_lengths, frames, number, generator)


def _sample_points(
    tree: PrefixTree,
    factors: Tensor,
    frame_lengths: Tensor,
    frames: int,
    number: int,
    generator: torch.Generator | None,
) -> Points:
    """Draw points of each utterance with probability proportional to their factors.

    Prefixes are drawn from evenly spread strata, which lowers the variance; frames uniformly. The draws come from the
    CPU, so that they are the same on every device.
    """
    utterances = len(frame_lengths)
    spread, place = torch.rand(2, utterances, number, generator=generator, dtype=torch.float64).to(factors.device)
    totals = factors.new_zeros(utterances).index_add_(0, tree.utterances, factors)
    ends = factors.cumsum(0)
    strata = (torch.arange(number, device=factors.device) + spread) / number
    targets = totals.cumsum(0)[:, None] - totals[:, None] * (1 - strata)
    nodes = torch.searchsorted(ends, targets.flatten(), right=True).clamp(max=len(factors) - 1).view(utterances, number)
    # Rounding at the edge of an utterance may yield its neighbour's node or one of no factor: such a draw counts 0.
    own = (tree.utterances[nodes] == torch.arange(utterances, device=nodes.device)[:, None]) & (factors[nodes] > 0)
    at = (place * frame_lengths[:, None]).long()
    weights = torch.where(own, (totals * frame_lengths / number)[:, None], 0)
    flat_frames = tree.utterances[nodes] * frames + torch.minimum(at, frame_lengths[tree.utterances[nodes]] - 1).clamp(min=0)
    return Points(flat_frames.flatten(), nodes.flatten(), weights.flatten())


def _sums(
    loss: Tensor,
    numerator: Tensor,
    normaliser: Tensor,
    raw_scores: Tensor,
    regulariser: Tensor,
    tree: PrefixTree,
    frame_lengths: Tensor,
) -> dict[str, Tensor]:
    """Detached sums for `metrics`."""
    sums = {
        "loss": loss,
        "numerator": numerator.sum(),
        "log_normaliser": normaliser.sum(),
        "regulariser": regulariser,
        "reference_share": (raw_scores[:, 0] - normaliser).exp().sum(),
        "competitors": tree.distinct[:, 1:].sum(),
        "frames": frame_lengths.sum(),
        "utterances": torch.tensor(len(frame_lengths)),
    }
    return {name: value.detach().to(loss.device) for name, value in sums.items()}


def _check(frames: Tensor, frame_lengths: Tensor, prefixes: Tensor, tree: PrefixTree, alpha: float) -> None:
    """Raise ValueError naming the argument that does not fit."""
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha is {alpha}; it must be between 0 (global) and 1 (local)")
    if frames.dim() != 3 or frames.shape[0] != tree.nodes.shape[0]:
        raise ValueError(f"frames must be [{tree.nodes.shape[0]}, T, J] for this tree; it is {list(frames.shape)}")
    if list(frame_lengths.shape) != [frames.shape[0]]:
        raise ValueError(f"frame_lengths must be one for each of {frames.shape[0]} utterances")
    if list(prefixes.shape) != [len(tree.parents), frames.shape[2]]:
        raise ValueError(
            f"prefixes must be [{len(tree.parents)}, {frames.shape[2]}], one for each node of the tree; "
            f"it is {list(prefixes.shape)}"
        )
