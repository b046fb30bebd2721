"""What one utterance by itself can do: pass frames at which nothing is emitted several at a time.

At most frames no extension is promising enough, so that all hypotheses take the blank and the predictor does not move.
The joiner can then weigh the points of several frames in one call. With many utterances at once there is enough to
multiply at every single frame.
"""

import numpy as np
from torch import Tensor

from transducer_gn.common.units import BLANK
from transducer_gn.lattice.interpolation import Interpolation
from transducer_gn.search.hypotheses import Beam

# Points of hypotheses and frames that are weighed in one call. More are multiplied faster, but also more in vain.
WINDOW_POINTS = 24


def window(beam: Beam) -> int:
    """Number of frames to weigh the points of a beam at."""
    return max(1, WINDOW_POINTS // max(1, len(beam.prefixes)))


def pass_blanks(
    beam: Beam, logits: Tensor, log_sums: Tensor, interpolation: Interpolation, width: int
) -> tuple[int, list[int]]:
    """Take a beam over the first of some frames, as long as no extension is promising enough.

    Args:
        beam: K' hypotheses of one utterance
        logits: [W, K', V] of their points at the next W frames
        log_sums: [W, K'] what these sum to
        interpolation: the normalisation
        width: K, most hypotheses of a beam

    Returns:
        how many frames were passed, and in which order the hypotheses are now
    """
    order = list(range(len(beam.prefixes)))
    # With fewer hypotheses every extension is promising enough.
    if len(order) < width:
        return 0, order
    blanks = interpolation.weights(logits[:, :, BLANK], log_sums).cpu().numpy()
    promises = (logits[:, :, 1:].amax(-1) + (1 - 2 * interpolation.alpha) * log_sums).cpu().numpy()
    # Strange weights are the business of others.
    if not (np.isfinite(blanks).all() and np.isfinite(promises).all()):
        return 0, order
    scores, passed = np.array(beam.scores, dtype=blanks.dtype), 0
    for blank, promise in zip(blanks, promises, strict=True):
        after = scores + blank[order]
        ranks = after.astype(np.float32, copy=False)
        lowest = ranks.min()
        if (scores + promise[order]).astype(np.float32, copy=False).max() > lowest:
            break
        slots = (-ranks).argsort(kind="stable")
        top = after[slots[0]]
        scores = after[slots] - top
        beam.offset += float(top)
        order = [order[slot] for slot in slots]
        passed += 1
    if passed:
        beam.frames += passed
        beam.scores = scores.tolist()
        beam.prefixes = [beam.prefixes[slot] for slot in order]
        beam.times = [beam.times[slot] for slot in order]
    return passed, order
