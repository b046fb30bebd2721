"""An exported system in use, without torch: load it, transcribe recordings, follow streams."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from transducer_gn.common.errors import require
from transducer_gn.common.units import SAMPLING_RATE
from transducer_gn.config import EVERYDAY, SHOW_ALL, DisplayConfig, RecognitionConfig
from transducer_gn.data.tokenizer import Tokenizer
from transducer_gn.recognition.samples import checked_samples, file_pieces
from transducer_gn.recognition.transcript import Transcript
from transducer_gn.runtime.layout import TOKEN_MODEL, Layout, read_layout
from transducer_gn.runtime.networks import Networks
from transducer_gn.runtime.search import BeamSearch, GreedySearch, Search
from transducer_gn.runtime.stream import ExportedStream

# Samples of a recording that are recognised at a time, so that memory does not grow with it.
PIECE = 10 * SAMPLING_RATE


@dataclass(frozen=True)
class ExportedSystem:
    """A system of ONNX files that recognises.

    Attributes:
        layout: what is known about it
        networks: its graphs
        tokenizer: its token model
    """

    layout: Layout
    networks: Networks
    tokenizer: Tokenizer

    def transcribe(
        self,
        audio: str | os.PathLike[str] | np.ndarray,
        settings: RecognitionConfig = EVERYDAY,
        sampling_rate: int = SAMPLING_RATE,
    ) -> Transcript:
        """Recognise a recording; gives its text and its words with times. UserError says what is wrong with audio.

        Args:
            audio: a file (any format that libsndfile reads), or samples [n]; mono, of the system's sampling rate
            settings: how to recognise, by beam or greedy search; chunks are those of the export
            sampling_rate: of samples; a file says its own
        """
        stream = self.stream(settings)
        pieces: Iterable[np.ndarray]
        if isinstance(audio, str | os.PathLike):
            pieces = file_pieces(Path(audio), SAMPLING_RATE, PIECE)
        else:
            samples = checked_samples(np.asarray(audio), sampling_rate, SAMPLING_RATE)
            pieces = (samples[start : start + PIECE] for start in range(0, len(samples), PIECE))
        for piece in pieces:
            stream.accept(piece)
        return stream.finish()

    def stream(self, settings: RecognitionConfig = EVERYDAY, display: DisplayConfig = SHOW_ALL) -> ExportedStream:
        """A new stream: audio in pieces of any size, text as it becomes known, of which `display` says what to show."""
        require(settings.streaming != "lookahead", "streaming", "an exported system runs chunk by chunk")
        for name in ("chunk", "left_context"):
            asked, own = getattr(settings, name), getattr(self.layout, name)
            require(asked in (None, own), name, f"the system was exported with {own}, not {asked}; export it again")
        tail = self.layout.tail_padding if settings.tail_padding is None else settings.tail_padding
        require(tail == 0 or self.layout.front_end is None, "tail_padding", "only filter banks have frames of silence")
        return ExportedStream(self.networks, self._search(settings), self.tokenizer, tail, display)

    def _search(self, settings: RecognitionConfig) -> Search:
        most = settings.max_tokens_per_frame or self.layout.max_tokens_per_frame
        if settings.method == "greedy":
            return GreedySearch(self.networks, most)
        return BeamSearch(self.networks, settings.beam, most)


def load(folder: str | Path, precision: str = "float32", threads: int = 1) -> ExportedSystem:
    """Load an exported system; UserError says what is missing.

    Args:
        folder: what export.py wrote
        precision: of the weights, "float32" or, if it was exported with --int8, "int8"
        threads: of the processor that one step may use
    """
    folder = Path(folder)
    layout = read_layout(folder)
    return ExportedSystem(layout, Networks(folder, layout, precision, threads), Tokenizer.load(folder / TOKEN_MODEL))
