"""Greedy search: the best label at every point, for a whole batch at once."""

from dataclasses import dataclass

import torch
from torch import Tensor

from transducer_gn.common.units import BLANK
from transducer_gn.config.evaluation import DEFAULT_TOKENS_PER_FRAME
from transducer_gn.model.predictor import State
from transducer_gn.search.beam import check_frames
from transducer_gn.search.hypotheses import Hypotheses, NBest
from transducer_gn.search.packing import rows_to_compute


@dataclass(frozen=True)
class Point:
    """Where each of B utterances is. The tensors are overwritten in place.

    Attributes:
      outputs: [B, J] predictor output for the tokens so far, projected for the joiner.
      state: predictor state, each tensor [B, ...].
      scores: [B] sum of the weights so far, in double precision.
      faulty: [B] whether a weight was NaN or infinitely large.
    """

    outputs: Tensor
    state: State
    scores: Tensor
    faulty: Tensor


@torch.no_grad()
def greedy_search(
    model,
    encoder_out: Tensor,
    frame_lengths: Tensor,
    alpha: float = 1.0,
    max_tokens_per_frame: int = DEFAULT_TOKENS_PER_FRAME,
) -> NBest:
    """One token sequence per utterance: at every point the label of largest weight, of equal ones the smallest id.

    After `max_tokens_per_frame` tokens a frame ends with its blank, whatever that weighs. The score is that of the one
    alignment, with weights `logits - alpha * log_sum`; alpha does not affect which labels are chosen.

    Args:
      model: see `transducer_gn.search.beam.BeamSearch`.
      encoder_out: [B, T, D]
      frame_lengths: [B] number of frames of each utterance; what lies beyond is ignored.
    """
    if max_tokens_per_frame < 1:
        raise ValueError(f"max_tokens_per_frame must be at least 1, not {max_tokens_per_frame}")
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha must be between 0 and 1, not {alpha}")
    lengths = check_frames(encoder_out, frame_lengths)
    frames = model.joiner.project_encoder(encoder_out)
    point = _start(model, len(lengths))
    labels = []
    for t in range(max(lengths, default=0)):
        at_frame = t < frame_lengths
        for emitted in range(max_tokens_per_frame + 1):
            rows = rows_to_compute(at_frame[:, None])
            if len(rows) == 0:
                break
            may_emit = emitted < max_tokens_per_frame
            label = _choose(model, point, frames[:, t], rows, at_frame, alpha, may_emit)
            at_frame = label != BLANK
            if may_emit:
                labels.append((t, label))
                _read(model, point, label)
    hypotheses = _collect(labels, point)
    hypotheses.check()
    return hypotheses.to_lists()


def _start(model, batch: int) -> Point:
    """The point before anything was emitted."""
    state = model.predictor.initial_state(batch)
    start_symbols = torch.full((batch,), BLANK, dtype=torch.long, device=state[0].device)
    output, state = model.predictor.step(start_symbols, state)
    outputs = model.joiner.project_predictor(output)
    return Point(
        outputs=outputs.clone(),
        state=tuple(part.clone() for part in state),
        scores=torch.zeros(batch, dtype=torch.double, device=outputs.device),
        faulty=torch.zeros(batch, dtype=torch.bool, device=outputs.device),
    )


def _choose(
    model, point: Point, frame: Tensor, rows: Tensor, at_frame: Tensor, alpha: float, may_emit: bool
) -> Tensor:
    """The best label [B] of utterances that are still at the frame, blank for others; adds its weight to the scores.

    Args:
      frame: [B, J]; rows: [n] utterances to compute; at_frame: [B] utterances that are at the frame.
    """
    logits = model.joiner(frame[rows], point.outputs[rows])
    log_sums = logits.logsumexp(-1)
    point.faulty[rows] |= at_frame[rows] & (log_sums.isnan() | log_sums.isposinf())
    log_sums = log_sums.where(log_sums > -torch.inf, 0)
    label = logits.argmax(-1) if may_emit else torch.full_like(rows, BLANK)
    weights = logits.gather(1, label[:, None])[:, 0] - alpha * log_sums
    point.scores[rows] += torch.where(at_frame[rows], weights, 0)
    chosen = torch.full_like(at_frame, BLANK, dtype=torch.long)
    chosen[rows] = torch.where(at_frame[rows], label, BLANK)
    return chosen


def _read(model, point: Point, label: Tensor) -> None:
    """Let the predictor read the labels [B] that are tokens."""
    is_token = label != BLANK
    rows = rows_to_compute(is_token[:, None])
    if len(rows) == 0:
        return
    output, state = model.predictor.step(label[rows], tuple(part[rows] for part in point.state))
    parts = [(point.outputs, model.joiner.project_predictor(output)), *zip(point.state, state, strict=True)]
    for part, new in parts:
        keep = is_token[rows].view(-1, *[1] * (part.dim() - 1))
        part[rows] = torch.where(keep, new, part[rows])


def _collect(labels: list[tuple[int, Tensor]], point: Point) -> Hypotheses:
    """One hypothesis per utterance from the labels [B] of all rounds, blank where nothing was emitted."""
    batch, device = len(point.scores), point.scores.device
    tokens = torch.stack([label for _, label in labels], dim=1) if labels else torch.zeros(batch, 0, device=device)
    times = torch.tensor([t for t, _ in labels], dtype=torch.long, device=device).expand(batch, -1)
    is_token = tokens != BLANK
    # Tokens to the front, in their order.
    order = (~is_token).long().argsort(dim=1, stable=True)
    return Hypotheses(
        tokens=tokens.gather(1, order)[:, None],
        lengths=is_token.sum(1, keepdim=True),
        scores=point.scores[:, None],
        times=times.gather(1, order)[:, None],
        faulty=point.faulty,
    )
