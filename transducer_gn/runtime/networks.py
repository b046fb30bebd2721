"""The three graphs of an exported system, run by onnxruntime."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from transducer_gn.common.errors import UserError
from transducer_gn.runtime.layout import SUFFIXES, Layout

try:
    import onnxruntime
except ImportError as error:  # an optional install
    raise UserError("exported systems need onnxruntime: pip install transducer_gn[runtime]") from error

# What the predictor remembers, or the encoder; every array has the batch as first dimension.
State = tuple[np.ndarray, ...]
# Types of arrays by onnxruntime's names of them.
TYPES = {"tensor(float)": "float32", "tensor(int64)": "int64"}


class Network:
    """One graph."""

    def __init__(self, path: Path, threads: int) -> None:
        if not path.is_file():
            raise UserError(f"{path}: there is no such file; export the system again, with --int8 if that is meant")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = threads
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        # onnxruntime has no class of its own that all of its errors belong to.
        except Exception as error:
            raise UserError(f"{path}: onnxruntime cannot load this file ({error}); export the system again") from error

    def run(self, outputs: list[str], inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        """The named outputs for the named inputs."""
        return self._session.run(outputs, inputs)

    def shape(self, name: str) -> list[int | str]:
        """Sizes of an input or output; names stand for those that are free."""
        known = [*self._session.get_inputs(), *self._session.get_outputs()]
        return next((item.shape for item in known if item.name == name), [])

    def inputs(self) -> dict[str, str]:
        """Types of all inputs by name."""
        return {item.name: TYPES.get(item.type, item.type) for item in self._session.get_inputs()}


@dataclass
class EncoderState:
    """What the encoder remembers of streams.

    Attributes:
        past: [N] how many frames of the memory are real
        memory: [N, layers, M, 2A] keys and values
        history: [N, layers, K - 1, D] the last inputs of its convolutions
    """

    past: np.ndarray
    memory: np.ndarray
    history: np.ndarray


class Networks:
    """All graphs of one system.

    Attributes:
        layout: what is known about them
        front_end: the graph of a pretrained front end; None where there is none

    Args:
        folder: where they are
        layout: what is known about them
        precision: of the weights, "float32" or "int8"
        threads: that one graph may use
    """

    def __init__(self, folder: Path, layout: Layout, precision: str, threads: int) -> None:
        if precision not in layout.precisions:
            known = ", ".join(layout.precisions)
            raise UserError(f"precision {precision}: {folder} has {known}; export the system again, or choose another")
        self.layout = layout
        self._encoder, self._predictor, self._joiner, *others = (
            Network(folder / f"{part}{SUFFIXES[precision]}", threads) for part in layout.parts
        )
        self.front_end = others[0] if others else None
        # What a stream begins with, and what the encoder is given, is made by the description's sizes.
        seen = [layout.framing.features_seen(layout.chunk), layout.framing.feature_dim]
        wanted = [(self._encoder, "memory", layout.memory), (self._encoder, "history", layout.history)]
        wanted += [(self._encoder, "features", seen), (self._joiner, "weights", [layout.vocab_size])]
        wanted += [(self._predictor, tensor.name, tensor.shape) for tensor in layout.predictor_state]
        remembered = {tensor.name: tensor.dtype for tensor in layout.predictor_state}
        faults = [name for network, name, shape in wanted if network.shape(name)[1:] != shape]
        if self._predictor.inputs() != {"tokens": "int64"} | remembered:
            faults.append("predictor_state")
        if faults:
            raise UserError(f"{folder}: its description does not fit its graphs ({faults[0]}); export the system again")

    def initial_encoder_state(self) -> EncoderState:
        """What is remembered of one stream before its first chunk."""
        empty = (np.zeros((1, *shape), dtype=np.float32) for shape in (self.layout.memory, self.layout.history))
        return EncoderState(np.zeros(1, dtype=np.int64), *empty)

    def encode(self, features: np.ndarray, frames: np.ndarray, state: EncoderState) -> tuple[np.ndarray, EncoderState]:
        """Projected frames [N, chunk, J] of chunks, and what to remember.

        Args:
            features: [N, features_seen(chunk), F] that the chunks see
            frames: [N] how many frames of each chunk are real
            state: what is remembered
        """
        outputs = ["projected_frames", "new_past", "new_memory", "new_history"]
        inputs = {"past": state.past, "memory": state.memory, "history": state.history}
        projected, *after = self._encoder.run(outputs, {"features": features, "frames": frames} | inputs)
        return projected, EncoderState(*after)

    def initial_prefix(self) -> tuple[np.ndarray, State]:
        """Projected output [1, J] of the empty prefix, and the state after it: the predictor has read one blank."""
        state = self.layout.predictor_state
        zeros = tuple(np.zeros((1, *tensor.shape), dtype=tensor.dtype) for tensor in state)
        return self.read(np.array([self.layout.blank]), zeros)

    def read(self, tokens: np.ndarray, state: State) -> tuple[np.ndarray, State]:
        """Let the predictor read one token per row: projected outputs [n, J] and the state after `tokens` [n]."""
        names = [tensor.name for tensor in self.layout.predictor_state]
        inputs = {"tokens": tokens.astype(np.int64)} | dict(zip(names, state, strict=True))
        output, *after = self._predictor.run(["projected_prefix", *(f"new_{name}" for name in names)], inputs)
        return output, tuple(after)

    def weigh(self, frame: np.ndarray, prefixes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Interpolated weights [n, V] at a projected frame [J] after projected prefixes [n, J], and log-sums [n]."""
        frames = np.broadcast_to(frame, prefixes.shape)
        weights, log_sums = self._joiner.run(
            ["weights", "log_sums"], {"projected_frame": frames, "projected_prefix": prefixes}
        )
        return weights, log_sums
