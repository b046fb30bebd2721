"""What a search on an accelerator leaves behind, frame by frame, and how the ways of hypotheses are read from it."""

from dataclasses import dataclass, fields
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from transducer_gn.search.hypotheses import NBest, check_faulty

Array = TypeVar("Array", Tensor, np.ndarray)


@dataclass
class Record(Generic[Array]):
    """What became of the hypotheses of B utterances in one frame; in all T of them with a dimension [T] before others.

    Columns, rounds and slots are those of `transducer_gn.search.on_device`. What stands here of a round that was left
    out means nothing.

    Attributes:
        survivors: [2, B, K] of the hypotheses that make up the next beam: fingerprints; and rows, that of slot k of
            utterance b in round s being (s * B + b) * K + k
        best: [B, K] their scores, relative to the best of the frame before; -inf where there is no hypothesis
        choices: [S, B, K] the extension, slot * V + token, that each hypothesis of a round came from
        targets: [S, B, K] the column that each of them was finished in, its own or that of the same prefix
        exceeded: [S, B, S * K] whether what a round added to an earlier column was more than what was there
    """

    survivors: Array
    best: Array
    choices: Array
    targets: Array
    exceeded: Array

    @staticmethod
    def zeros(scores: Tensor, rounds: int, *frames: int) -> "Record[Tensor]":
        """A record for beams with `scores` [B, K] and S rounds, of one frame or of as many as are given."""
        batch, beam = scores.shape
        return Record(
            survivors=scores.new_zeros(*frames, 2, batch, beam, dtype=torch.long),
            best=scores.new_zeros(*frames, batch, beam),
            choices=scores.new_zeros(*frames, rounds, batch, beam, dtype=torch.long),
            targets=scores.new_zeros(*frames, rounds, batch, beam, dtype=torch.long),
            exceeded=scores.new_zeros(*frames, rounds, batch, rounds * beam, dtype=torch.bool),
        )

    def at(self, t: int) -> "Record[Array]":
        """The record of one of T frames."""
        return Record(*(getattr(self, field.name)[t] for field in fields(self)))


def copy_record(target: Record[Tensor], source: Record[Tensor]) -> None:
    """Overwrite a record in place."""
    for field in fields(target):
        getattr(target, field.name).copy_(getattr(source, field.name))


def read_backwards(records: Record[Tensor], steps: list[int], lengths: list[int], vocabulary: int) -> NBest:
    """The hypotheses of utterances after their last frames; ValueError if the model was at fault.

    Args:
        records: of T frames
        steps: the last round of each frame
        lengths: B numbers of frames
        vocabulary: V
    """
    on_host: Record[np.ndarray] = Record(*(getattr(records, field.name).cpu().numpy() for field in fields(records)))
    last = _scores(on_host.best, lengths)
    check_faulty(np.isnan(last).any(1).tolist())
    tokens, times = _ways(on_host, steps, np.array(lengths, dtype=np.int64), vocabulary)
    result = NBest([], [], [])
    for b, own in enumerate(last):
        alive = np.flatnonzero(own > -np.inf)
        emitted = [tokens[:, b, slot] > 0 for slot in alive]
        result.tokens.append([tokens[mask, b, k].tolist() for k, mask in zip(alive, emitted, strict=True)] or [[]])
        result.times.append([times[mask].tolist() for mask in emitted] or [[]])
        result.scores.append(own[alive].tolist() or [-np.inf])
    return result


def _scores(best: np.ndarray, lengths: list[int]) -> np.ndarray:
    """Scores [B, K] of beams after their last frames; NaN where the model was at fault.

    A beam that has lost its last hypothesis stays without any, whatever was computed for it afterwards.

    Args:
        best: [T, B, K] see `Record`
        lengths: B numbers of frames
    """
    scores = np.full(best.shape[1:], -np.inf)
    for b, length in enumerate(lengths):
        tops = best[:length, b, 0]
        lost, faulty = tops == -np.inf, np.isnan(tops) | (tops == np.inf)
        if length == 0:
            scores[b, 0] = 0
        elif faulty.any() and not lost[: faulty.argmax()].any():
            scores[b] = np.nan
        elif not lost.any():
            scores[b] = best[length - 1, b] - tops[-1] + np.cumsum(tops, dtype=np.float64)[-1]
    return scores


def _ways(
    records: Record[np.ndarray], steps: list[int], lengths: np.ndarray, vocabulary: int
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens [T * S, B, K] of the hypotheses after the last frames, 0 where nothing was emitted, and times [T * S].

    Args:
        records: of T frames
        steps: the last round of each frame
        lengths: [B]
        vocabulary: V
    """
    frames, rounds, batch, beam = records.choices.shape
    tokens = np.zeros((frames, rounds, batch, beam), dtype=np.int64)
    slots = np.broadcast_to(np.arange(beam), (batch, beam))
    for t in reversed(range(frames)):
        running = (t < lengths)[:, None]
        columns = np.take_along_axis(_sources(records.at(t), steps[t]), slots, axis=1)
        slots = np.where(running, columns % beam, slots)
        for step in range(steps[t], 0, -1):
            inside = running & (columns >= step * beam)
            if inside.any():
                choices = np.take_along_axis(records.choices[t, step - 1], slots, axis=1)
                tokens[t, step - 1] = np.where(inside, choices % vocabulary, 0)
                slots = np.where(inside, choices // vocabulary, slots)
    return tokens.reshape(frames * rounds, batch, beam), np.arange(frames).repeat(rounds)


def _sources(record: Record[np.ndarray], step: int) -> np.ndarray:
    """The columns [B, K] that tell how the best alignments of the survivors went in one frame of rounds 0 to `step`."""
    batch, beam = record.best.shape
    rows = record.survivors[1]
    columns = rows // (batch * beam) * beam + rows % beam
    sources = columns
    for number in range(1, step + 1):
        earlier = np.minimum(columns, number * beam - 1)
        exceeded = np.take_along_axis(record.exceeded[number - 1], earlier, axis=1) & (columns < number * beam)
        if exceeded.any():
            places = (record.targets[number - 1][:, None] == columns[:, :, None]).argmax(2)
            sources = np.where(exceeded, number * beam + places, sources)
    return sources
