"""A search on an accelerator from its first frame to its result, frame by frame."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from transducer_gn.search.frames import JoinedFrames
from transducer_gn.search.hypotheses import NBest
from transducer_gn.search.on_device import DeviceSearch
from transducer_gn.search.record import Record, copy_record, read_backwards

# Some megabytes for each batch of a group that is searched together.
FRAMES_AT_ONCE = 64


class Graphs:
    """Calls that are launched one by one the first time, and as one CUDA graph from the second time on.

    A call must be made with the same arguments under the same name, and read and write the same tensors, every time.
    Written for CUDA but not tried on it; off a CUDA device, and if it is not wanted, every call is made as it is.

    Attributes:
        wanted: whether there are to be graphs
    """

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted
        self._warm: set[tuple[str, int]] = set()
        self._captured: dict[tuple[str, int], tuple[torch.cuda.CUDAGraph, Tensor | None]] = {}

    def run(self, name: tuple[str, int], call: Callable[[], Tensor | None]) -> Tensor | None:
        """Make a call, and give what it gives."""
        if not self.wanted:
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
    records = Record.zeros(frame.scores, search.rounds, len(rows))
    steps = []
    for t, encoded in enumerate(_by_time(joined.frames, rows)):
        # A graph has its tensors once and for all; without one, a frame works on its own part of everything.
        if graphs.wanted:
            frame.encoded.copy_(encoded)
        else:
            frame.encoded, frame.record = encoded, records.at(t)
        step, taken = 0, graphs.run(("begin", 0), search.begin)
        while taken is not None and taken.cpu().numpy().any():
            step += 1
            taken = graphs.run(("extend", step), partial(search.extend, step))
        graphs.run(("end", step), partial(search.end, step))
        if graphs.wanted:
            copy_record(records.at(t), frame.record)
        steps.append(step)
    return read_backwards(records, steps, joined.lengths, search.vocabulary)


def _by_time(frames: Tensor, rows: Tensor) -> Iterator[Tensor]:
    """Frames [B, J] time by time, looked up for many times at once.

    Args:
        frames: [n, J]
        rows: [T, B] numbers of them
    """
    for block in rows.split(FRAMES_AT_ONCE):
        yield from frames.index_select(0, block.flatten()).unflatten(0, block.shape).unbind()
