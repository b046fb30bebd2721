"""One frame of the beam search in lists: which hypotheses are extended, and frames at which none is."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from transducer_gn.common.units import BLANK
from transducer_gn.lattice.interpolation import Interpolation
from transducer_gn.search.hypotheses import Beam, Finished, Round

# (-promise, row of the hypothesis, token), so that the most promising extensions come first, and ties as they should.
Candidate = tuple[float, int, int]


@dataclass(slots=True)
class Weighed:
    """The points of a round at a frame.

    Attributes:
        logits: [n, V] raw weights of all arcs
        log_sums: [n] what they sum to, or 0 where all of them are -inf
        offsets: [n] what turns a raw weight into a promise
    """

    logits: Tensor
    log_sums: Tensor
    offsets: Tensor


def choose_extensions(
    hypotheses: Round, weighed: Weighed, finished: list[Finished], beam: int
) -> tuple[list[tuple[int, int]], list[int]]:
    """The extensions of highest promise, at most `beam` of each utterance.

    Args:
        hypotheses: a round
        weighed: its points
        finished: what each utterance has finished so far
        beam: K

    Returns:
        Row and token of each, utterance by utterance; and where those of each utterance end
    """
    # The highest promise of a row is that of its largest weight: adding the same to all keeps their order.
    best = (weighed.logits[:, 1:].amax(1) + weighed.offsets).float().tolist()
    thresholds, rows, start = [], [], 0
    for own, end in zip(finished, hypotheses.ends, strict=True):
        thresholds.append(own.threshold(beam))
        rows += [row for row in range(start, end) if best[row] > thresholds[-1]]
        start = end
    if not rows:
        return [], [0] * len(finished)
    candidates = _candidates(weighed, rows, beam)
    chosen: list[tuple[int, int]] = []
    ends, waiting = [], 0
    for threshold, end in zip(thresholds, hypotheses.ends, strict=True):
        own: list[Candidate] = []
        while waiting < len(rows) and rows[waiting] < end:
            own += [candidate for candidate in candidates[waiting] if -candidate[0] > threshold]
            waiting += 1
        own.sort()
        chosen += [(row, token) for _, row, token in own[:beam]]
        ends.append(len(chosen))
    return chosen, ends


def _candidates(weighed: Weighed, rows: list[int], beam: int) -> list[list[Candidate]]:
    """The `beam` best extensions of each of the rows, as they are compared."""
    index = torch.tensor(rows, device=weighed.logits.device)
    promises = weighed.logits.index_select(0, index)[:, 1:] + weighed.offsets.index_select(0, index)[:, None]
    promises = promises.float()
    count = min(beam, promises.shape[1])
    values, tokens = promises.topk(min(count + 1, promises.shape[1]))
    candidates = []
    for place, (row, own, ids) in enumerate(zip(rows, values.tolist(), tokens.tolist(), strict=True)):
        if len(own) > count and own[count] == own[count - 1]:
            # Which of equal promises come first is left open by topk, but not by the rules.
            own, ids = (part[:count].tolist() for part in promises[place].sort(descending=True, stable=True))
        entries = zip(own[:count], ids[:count], strict=True)
        candidates.append([(-promise, row, token + 1) for promise, token in entries])
    return candidates


def pass_blanks(
    beam: Beam, logits: Tensor, log_sums: Tensor, interpolation: Interpolation, width: int
) -> tuple[int, list[int]]:
    """Take a beam over frames at which no extension is promising enough, so that all hypotheses take blanks.

    Args:
        beam: K' hypotheses of one utterance
        logits: [W, K', V] of their points at the next W frames
        log_sums: [W, K'] what these sum to
        interpolation: the normalisation
        width: K, most hypotheses of a beam

    Returns:
        How many frames were passed, and the order in which the hypotheses are now
    """
    order = list(range(len(beam.prefixes)))
    blanks = interpolation.weights(logits[:, :, BLANK], log_sums)
    promises = logits[:, :, 1:].amax(-1) + (1 - 2 * interpolation.alpha) * log_sums
    blanks, promises = blanks.cpu().numpy(), promises.cpu().numpy()
    # With fewer hypotheses every extension is promising enough; strange weights are the business of others.
    if len(order) < width or not np.isfinite(blanks).all():
        return 0, order
    passed = 0
    scores = np.array(beam.scores, dtype=blanks.dtype)
    for blank, promise in zip(blanks, promises, strict=True):
        after = scores + blank[order]
        ranks = after.astype(np.float32)
        lowest = ranks.min()
        if not -np.inf < lowest or (scores + promise[order]).astype(np.float32).max() > lowest:
            break
        sorted_slots = (-ranks).argsort(kind="stable")
        top = after[sorted_slots[0]]
        scores = after[sorted_slots] - top
        beam.offset += float(top)
        order = [order[slot] for slot in sorted_slots]
        passed += 1
    beam.frames += passed
    beam.scores = scores.tolist()
    beam.prefixes = [beam.prefixes[slot] for slot in order]
    beam.times = [beam.times[slot] for slot in order]
    return passed, order
