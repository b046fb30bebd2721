"""A search on an accelerator from its first frame to its result: frame by frame, their records read at the end."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from transducer_gn.search.frames import JoinedFrames
from transducer_gn.search.hypotheses import NBest, check_faulty
from transducer_gn.search.on_device import DeviceSearch


class Graphs:
    """Calls that are launched one by one the first time, and as one CUDA graph from the second time on.

    A call must be made with the same arguments under the same name, and read and write the same tensors, every time.
    Written for CUDA but not tried on it; off a CUDA device, and if it is not wanted, every call is made as it is.
    """

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._warm: set[tuple[str, int]] = set()
        self._captured: dict[tuple[str, int], tuple[torch.cuda.CUDAGraph, Tensor | None]] = {}

    def run(self, name: tuple[str, int], call: Callable[[], Tensor | None]) -> Tensor | None:
        """Make a call, and give what it gives."""
        if not self._wanted:
            return call()
        if name not in self._warm:
            self._warm.add(name)
            return call()
        if name not in self._captured:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                result = call()
            self._captured[name] = graph, result
        graph, result = self._captured[name]
        graph.replay()
        return result


@torch.no_grad()
def run_on_device(search: DeviceSearch, joined: JoinedFrames, graph: bool = True) -> NBest:
    """All hypotheses of each utterance, in the order of the beam; ValueError if the model is at fault.

    Synchronises at most S times per frame, and at the end.

    Args:
        search: a new search over B utterances
        joined: their frames
        graph: whether to replay the steps of a frame as graphs where there is CUDA
    """
    graphs = Graphs(graph and joined.frames.is_cuda)
    frame, rows = search.frame, joined.rows_by_time()
    records = frame.record.new_zeros(len(rows), *frame.record.shape)
    scores = frame.offsets.new_full((len(rows) + 1, *frame.scores.shape), -torch.inf)
    scores[0, :, 0] = 0
    for t, now in enumerate(rows.unbind()):
        torch.index_select(joined.frames, 0, now, out=frame.encoded)
        step, more = 0, graphs.run(("begin", 0), search.begin)
        while more is not None and bool(more):
            step += 1
            more = graphs.run(("extend", step), partial(search.extend, step))
        graphs.run(("end", step), partial(search.end, step))
        records[t] = frame.record
        torch.add(frame.scores, frame.offsets[:, None], out=scores[t + 1])
    return read_backwards(records.cpu().numpy(), scores.cpu().numpy(), joined.lengths)


def read_backwards(records: np.ndarray, scores: np.ndarray, lengths: list[int]) -> NBest:
    """The hypotheses of utterances after their last frames.

    Args:
        records: [T, 1 + 2 * S, B, K] see `transducer_gn.search.on_device.Frame`
        scores: [T + 1, B, K] of the beam before the first and after each frame
        lengths: B numbers of frames
    """
    last = scores[lengths, np.arange(len(lengths))]
    check_faulty(np.isnan(last).any(1).tolist())
    tokens, times = _ways(records, np.array(lengths, dtype=np.int64))
    result = NBest([], [], [])
    for b, own in enumerate(last):
        alive = np.flatnonzero(own > -np.inf)
        emitted = [tokens[:, b, slot] > 0 for slot in alive]
        result.tokens.append([tokens[mask, b, k].tolist() for k, mask in zip(alive, emitted, strict=True)] or [[]])
        result.times.append([times[mask].tolist() for mask in emitted] or [[]])
        result.scores.append(own[alive].tolist() or [-np.inf])
    return result


def _ways(records: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tokens [T * S, B, K] of the hypotheses after the last frames, 0 where nothing was emitted, and times [T * S].

    Args:
        records: [T, 1 + 2 * S, B, K]
        lengths: [B]
    """
    frames, rows, batch, beam = records.shape
    rounds = (rows - 1) // 2
    tokens = np.zeros((frames, rounds, batch, beam), dtype=np.int64)
    slots = np.broadcast_to(np.arange(beam), (batch, beam))
    for t in reversed(range(frames)):
        running = (t < lengths)[:, None]
        columns = np.take_along_axis(records[t, 0], slots, axis=1)
        slots = np.where(running, columns % beam, slots)
        for step in range(rounds, 0, -1):
            inside = running & (columns >= step * beam)
            if inside.any():
                emitted = np.take_along_axis(records[t, rounds + step], slots, axis=1)
                tokens[t, step - 1] = np.where(inside, emitted, 0)
                slots = np.where(inside, np.take_along_axis(records[t, step], slots, axis=1), slots)
    return tokens.reshape(frames * rounds, batch, beam), np.arange(frames).repeat(rounds)
