"""Expected errors: the objective of minimum word error rate, on the same lists of sequences as Z.

A list of an utterance's sequences has a posterior of its own, the softmax of their scores, and each of them so many
errors. What is minimised is the errors to expect, relative to those of the list on average:

    sum over n of P(n) (errors(n) - mean of errors),    P(n) = exp score(n) / sum over m of exp score(m)

The mean, the *baseline*, changes no gradient of a whole list, whose posterior sums to 1; it keeps the terms small, and
the loss of a list whose sequences are all as bad as each other at 0.

Scores are sums over all alignments. Under raw weights they are not normalised, and need not be: the posterior is. Under
locally normalised ones they are log probabilities, and the posterior is what the list has of the model's own.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transducer_gn.config import MwerConfig
from transducer_gn.recognition.error_rates import edit_distance


@dataclass(frozen=True)
class ListErrors:
    """Errors of the sequences of B lists of S sequences each.

    Attributes:
        counts: [B, S] errors of each sequence; 0 where there is none
        reference_units: number of words (or tokens) of all references together
        always_reference: False leaves a reference out of its list where it scores lower than all competitors
    """

    counts: Tensor
    reference_units: int
    always_reference: bool


@dataclass(frozen=True)
class ExpectedErrors:
    """What B lists lead one to expect.

    Attributes:
        expected: [B] errors under the list's posterior
        baseline: [B] errors of the list's sequences on average
        reference_units: see `ListErrors`
    """

    expected: Tensor
    baseline: Tensor
    reference_units: int

    @property
    def loss(self) -> Tensor:
        """[B] to minimise."""
        return self.expected - self.baseline


def expected_errors(scores: Tensor, distinct: Tensor, errors: ListErrors) -> ExpectedErrors:
    """The errors that lists lead one to expect.

    Args:
        scores: [B, S] of sequences, the reference first
        distinct: [B, S] whether a sequence is there and differs from those before it
        errors: of the same sequences
    """
    listed = distinct if errors.always_reference else torch.cat([_is_found(scores, distinct), distinct[:, 1:]], 1)
    posterior = scores.masked_fill(~listed, -math.inf).softmax(1)
    counts = errors.counts.to(scores)
    baseline = (counts * listed).sum(1) / listed.sum(1)
    # Relative to the baseline before they are added up, so that large counts do not drown small differences.
    relative = (posterior * torch.where(listed, counts - baseline[:, None], 0)).sum(1)
    return ExpectedErrors(baseline + relative, baseline, errors.reference_units)


def _is_found(scores: Tensor, distinct: Tensor) -> Tensor:
    """[B, 1]: whether the reference scores as high as its last competitor, or has none."""
    others = scores[:, 1:].detach().masked_fill(~distinct[:, 1:], math.inf)
    last = torch.nn.functional.pad(others, (0, 1), value=math.inf).amin(1, keepdim=True)
    return (scores[:, :1].detach() >= last) | ~distinct[:, 1:].any(1, keepdim=True)


@dataclass(frozen=True)
class ErrorTask:
    """Lists whose errors are still to be counted, which is for the host to do while the device is at the lattices.

    Attributes:
        settings: what the errors are for
        count: counts them
    """

    settings: MwerConfig
    count: Callable[[], ListErrors]


class ErrorCounter:
    """Counts the errors of lists of token sequences.

    Args:
        settings: what counts as an error
        text_of: makes text of tokens; not asked where errors are counted in tokens
    """

    def __init__(self, settings: MwerConfig, text_of: Callable[[Sequence[int]], str]) -> None:
        self._settings = settings
        self._text_of = text_of

    def task(self, tokens: Tensor, lengths: Tensor) -> ErrorTask:
        """Take over lists from the device; waits for it.

        Args:
            tokens: [B, S, U] token ids; sequence 0 of each utterance is its reference
            lengths: [B, S] number of tokens, -1 where there is no sequence
        """
        lists = [
            [own[:length] if length >= 0 else None for own, length in zip(*rows, strict=True)]
            for rows in zip(tokens.tolist(), lengths.tolist(), strict=True)
        ]
        return ErrorTask(self._settings, lambda: self.count(lists))

    def count(self, lists: Sequence[Sequence[list[int] | None]]) -> ListErrors:
        """The errors of each sequence, None for one that is not there, against the first of its list."""
        counts, units = [], 0
        for own in lists:
            reference, *others = ([] if tokens is None else self._units(tokens) for tokens in own)
            distances = (edit_distance(reference, other) for other in others)
            is_there = (tokens is not None for tokens in own[1:])
            counts.append([0, *(errors if there else 0 for errors, there in zip(distances, is_there, strict=True))])
            units += len(reference)
        return ListErrors(torch.tensor(counts, dtype=torch.int64), units, self._settings.reference == "always")

    def _units(self, tokens: list[int]) -> Sequence[Hashable]:
        return tokens if self._settings.unit == "token" else self._text_of(tokens).split()
