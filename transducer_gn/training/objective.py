"""The objective of the paper: from locally to globally normalised, by the interpolation weight alpha.

For one utterance x with reference z, raw weights f = exp(logits) and their local sums Z_l:

    (1 - mwer) x likelihood  +  mwer x expected errors  +  weight x regulariser

    likelihood   (1 - alpha) log Z(x)  -  log sum over alignments of z of prod f / Z_l^alpha
    Z(x)         the sum over label sequences of prod f
    regulariser  frames x mean of (log Z_l)^2 over lattice points

The paper has the likelihood alone, mwer = 0. There are three ways to its Z, each in a module of its own, which give the
terms of this sum; here they are put together.

    nbest_objective   over the reference and its competitors, at the points of their prefix tree: how models are trained
    exact_objective   over all sequences, for finite-state predictors
    dense_objective   as N-best, but as the paper computes it: the reference for the first, and its opponent

Expected errors (`expected_errors`) are a further objective on the sequences of the first, and on their scores.
Everything is summed over utterances, so that a batch divided among machines has the same gradient.
At mwer = 0, alpha = 1 is the ordinary Transducer loss and needs neither competitors nor Z.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from transducer_gn.lattice.interpolation import Interpolation
from transducer_gn.training.expected_errors import ExpectedErrors
from transducer_gn.training.schedule import SchedulePoint

# What an objective reports sums of; `metrics` makes values of them.
SUMS = (
    "loss",
    "numerator",
    "log_normaliser",
    "regulariser",
    "reference_share",
    "competitors",
    "cut",
    "found",
    "expected_errors",
    "reference_units",
    "reading",
    "readings",
    "frames",
    "utterances",
)


@dataclass(frozen=True)
class Terms:
    """What a way to Z gives for a batch of B utterances.

    Attributes:
        numerator: [B] interpolated scores of the references
        log_normaliser: [B] log Z; None where alpha is 1 and it was not computed
        reference_share: [B] the reference's share of Z; None where it was not computed
        regulariser: its sum over utterances, without its weight
        log_sums: some log-sums of output vectors, to look at their distribution; 0 at points that do not exist
        competitors: number of distinct competitors of all utterances
        errors: expected errors of lists; None where there are no lists or nobody asked
    """

    numerator: Tensor
    log_normaliser: Tensor | None
    reference_share: Tensor | None
    regulariser: Tensor
    log_sums: Tensor
    competitors: Tensor
    errors: ExpectedErrors | None = None


@dataclass(frozen=True)
class Objective:
    """The loss of a batch and what it is made of; all but `loss` without gradient.

    Attributes:
        loss: to minimise; the sum over utterances, regulariser included
        sums: sums over the batch, by name, that can be added up over batches and ranks: see `metrics`
        log_sums: see `Terms`
        fault: why there is no such objective, and the loss is NaN; None where all is well, as far as is known yet
    """

    loss: Tensor
    sums: Mapping[str, Tensor]
    log_sums: Tensor
    fault: str | None = None

    def metrics(self) -> dict[str, float]:
        """Values to look at; waits for the device."""
        return metrics(self.sums)


def combine(terms: Terms, point: SchedulePoint, frame_lengths: Tensor) -> Objective:
    """Put the terms together.

    Args:
        terms: of a batch
        point: alpha and the weights of expected errors and regulariser, now
        frame_lengths: [B] number of frames of each utterance
    """
    loss = sequence_losses(terms, point).sum()
    if point.regulariser > 0:
        loss = loss + point.regulariser * terms.regulariser
    unknown = torch.tensor(math.nan)
    sums = {
        "loss": loss,
        "numerator": terms.numerator.sum(),
        "log_normaliser": unknown if terms.log_normaliser is None else terms.log_normaliser.sum(),
        "regulariser": terms.regulariser,
        "reference_share": unknown if terms.reference_share is None else terms.reference_share.sum(),
        "competitors": terms.competitors,
        "cut": torch.zeros(()),
        "found": torch.zeros(()),
        "expected_errors": unknown if terms.errors is None else terms.errors.expected.sum(),
        "reference_units": torch.tensor(0 if terms.errors is None else terms.errors.reference_units),
        "reading": torch.zeros(()),
        "readings": torch.zeros(()),
        "frames": frame_lengths.sum(),
        "utterances": torch.tensor(len(frame_lengths)),
    }
    detached = {name: value.detach().to(loss.device) for name, value in sums.items()}
    return Objective(loss, detached, terms.log_sums.detach())


def sequence_losses(terms: Terms, point: SchedulePoint) -> Tensor:
    """[B] the objective of each utterance without the regulariser."""
    if point.mwer > 0 and terms.errors is None:
        raise ValueError(f"mwer is {point.mwer}, but there are no lists of sequences to expect errors of")
    if point.mwer == 1 and terms.errors is not None:
        return terms.errors.loss
    likelihood = Interpolation(point.alpha).loss(terms.log_normaliser, terms.numerator)
    if point.mwer == 0 or terms.errors is None:
        return likelihood
    return (1 - point.mwer) * likelihood + point.mwer * terms.errors.loss


def metrics(sums: Mapping[str, Tensor]) -> dict[str, float]:
    """Per-frame or per-utterance values from sums over one or more batches.

    Returns:
        loss, numerator: per frame; regulariser: mean of log_sum^2, unweighted; competitors: mean number of distinct
        competitors; competitors_cut: mean number of those as long as is allowed; reference_found: share of utterances
        whose search found the reference; log_normaliser: log Z per frame;
        reference_share: mean over utterances of the reference's share of Z (at 1, competitors have become useless and
        nothing is learnt). At alpha 1 Z has no say and is not computed: if that is so for any batch, there is no
        log_normaliser, while the share is 1 of a list that holds the reference alone, and missing as well where Z
        would be exact; expected_errors: per word (or token) of the references, only
        where all batches have them; reading: cross-entropy per token of text that was read beside the batches
    """
    names = list(sums)
    values = dict(zip(names, torch.stack([sums[name].double() for name in names]).tolist(), strict=True))
    frames, utterances = max(values["frames"], 1.0), max(values["utterances"], 1.0)
    per_frame = ("loss", "numerator", "log_normaliser", "regulariser")
    found = {name: values[name] / frames for name in per_frame} | {
        name: values[name] / utterances for name in ("reference_share", "competitors")
    }
    found["competitors_cut"] = values["cut"] / utterances
    found["reference_found"] = values["found"] / utterances
    found["expected_errors"] = values["expected_errors"] / max(values["reference_units"], 1.0)
    if values["readings"] > 0:
        found["reading"] = values["reading"] / values["readings"]
    unknown = {name for name in ("log_normaliser", "reference_share", "expected_errors") if math.isnan(found[name])}
    return {name: value for name, value in found.items() if name not in unknown}
