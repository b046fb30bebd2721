"""One round of a frame of the beam search in lists: which extensions make up the next one.

`transducer_gn.search.beam` has the rules.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from transducer_gn.search.hypotheses import Finished, Round

# (-promise, row of the hypothesis, token): the most promising extensions come first, and ties as they should.
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
        row and token of each, utterance by utterance; and where those of each utterance end
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
    candidates = best_extensions(weighed.logits, weighed.offsets, rows, beam)
    chosen: list[tuple[int, int]] = []
    ends, waiting = [], 0
    for threshold, end in zip(thresholds, hypotheses.ends, strict=True):
        found: list[Candidate] = []
        while waiting < len(rows) and rows[waiting] < end:
            found += [candidate for candidate in candidates[waiting] if -candidate[0] > threshold]
            waiting += 1
        found.sort()
        chosen += [(row, token) for _, row, token in found[:beam]]
        ends.append(len(chosen))
    return chosen, ends


def best_extensions(logits: Tensor, offsets: Tensor, rows: list[int], beam: int) -> list[list[Candidate]]:
    """The `beam` most promising extensions of some hypotheses, as they are compared.

    Args:
        logits: [n, V] raw weights
        offsets: [n] what turns them into promises
        rows: the hypotheses
        beam: K
    """
    index = torch.tensor(rows, device=logits.device)
    promises = logits.index_select(0, index)[:, 1:] + offsets.index_select(0, index)[:, None]
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
