"""The vectors of a pretrained front end for audio that arrives in pieces: one chunk at a time through its graph.

Where frames and chunks lie is said by `transducer_gn.model.moonshine_context`; a stream keeps the audio from the next
chunk's first frame on, three sums, and the keys and values that attention remembers.
"""

import numpy as np

from transducer_gn.model.moonshine_context import (
    FRAME_STEP,
    OUTPUT_STEP,
    WAVE_STEP,
    Block,
    Mixture,
    mixture,
    outputs,
    wave_outputs,
)
from transducer_gn.runtime.layout import FrontEndLayout
from transducer_gn.runtime.networks import Network

OUTPUTS = ["vectors", "new_sums", "new_memory"]


class OnlineMoonshine:
    """The vectors of one stream.

    Args:
        network: the graph
        layout: what is known about it
    """

    def __init__(self, network: Network, layout: FrontEndLayout) -> None:
        self._network = network
        self._layout = layout
        self._context = layout.context
        self._samples = np.zeros(0, dtype=np.float32)
        self._received = 0
        self._finished = False
        # Number of the next chunk.
        self._chunk = 0
        self._counted = 0
        self._sums = np.zeros((1, 3))
        layers, heads, width = layout.memory
        self._memory = np.zeros((1, layers, heads, 0, width), dtype=np.float32)
        # The last frame [0 or 1, F] so far, from which the next vector is mixed.
        self._last = np.zeros((0, layout.width), dtype=np.float32)

    def accept(self, samples: np.ndarray) -> np.ndarray:
        """Vectors [n, F] of chunks that are now complete, after more `samples` [m] between -1 and 1."""
        self._samples = np.concatenate([self._samples, samples.astype(np.float32)])
        self._received += len(samples)
        return self._advance()

    def finish(self) -> np.ndarray:
        """The remaining vectors [n, F]."""
        self._finished = True
        return self._advance()

    @property
    def _is_ready(self) -> bool:
        if self._finished:
            return self._chunk < self._context.chunks(self._received)
        return self._received >= (self._chunk + 1) * self._layout.chunk + self._layout.right

    def _advance(self) -> np.ndarray:
        vectors = [self._last[:0]]
        while self._is_ready:
            block = self._context.block(self._chunk, self._received)
            vectors.append(self._mix(block, self._encode(block) if block.size else self._last[:0]))
            self._chunk += 1
        return np.concatenate(vectors)

    def _encode(self, block: Block) -> np.ndarray:
        """The frames [own, F] of a chunk; takes it into what is remembered and drops what no later chunk needs."""
        heard = self._context.heard(self._chunk, self._received)
        # Audio at hand begins with this block's first frame.
        begin = FRAME_STEP * block.first
        window = np.zeros((1, self._layout.window), dtype=np.float32)
        window[0, : heard - begin] = self._samples[: heard - begin]
        waves = wave_outputs(heard)
        numbers = {
            "waves": waves - begin // WAVE_STEP,
            "counted": self._counted - begin // WAVE_STEP,
            "first": block.first,
            "frames": block.size,
            "past": self._memory.shape[3],
        }
        inputs: dict[str, np.ndarray] = {name: np.array([number], dtype=np.int64) for name, number in numbers.items()}
        inputs |= {"samples": window, "sums": self._sums, "memory": self._memory}
        vectors, self._sums, new = self._network.run(OUTPUTS, inputs)
        self._counted = waves
        known = np.concatenate([self._memory, new[:, :, :, : block.own]], axis=3)
        kept = max(0, block.first + block.own - self._context.first_seen(self._chunk + 1))
        self._memory = known[:, :, :, known.shape[3] - min(kept, known.shape[3]) :].copy()
        self._samples = self._samples[FRAME_STEP * block.own :].copy()
        return vectors[0, : block.own]

    def _mix(self, block: Block, new: np.ndarray) -> np.ndarray:
        """The chunk's vectors [n, F], every 20 ms, from its `new` frames [own, F] and the last one before."""
        known = np.concatenate([self._last, new])
        first = block.first - len(self._last)
        self._last = known[-1:].copy()
        per_chunk = self._layout.chunk // OUTPUT_STEP
        begin = self._chunk * per_chunk
        end = begin + per_chunk
        if self._finished:
            end = min(end, outputs(self._received))
        if len(known) == 0 or end <= begin:
            return known[:0]
        return mixed(mixture(begin, end, self._context, self._received), known, first)


def mixed(mixture: Mixture, values: np.ndarray, first: int) -> np.ndarray:
    """Outputs [K, F] from the `values` [n, F] of frames from number `first` on."""
    earlier, later = values[mixture.earlier - first], values[mixture.later - first]
    return earlier + mixture.share.astype(np.float32)[:, None] * (later - earlier)
