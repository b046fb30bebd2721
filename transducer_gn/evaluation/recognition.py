"""Recognising batches: beam or greedy search, over whole utterances or truly chunk by chunk."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

from transducer_gn.data.batches import Batch
from transducer_gn.data.prepared import PreparedData
from transducer_gn.data.stage import file_fingerprint
from transducer_gn.errors import UserError, require
from transducer_gn.evaluation.error_rates import Recognised
from transducer_gn.evaluation.systems import System
from transducer_gn.model.chunk import FULL_CONTEXT, Chunk, evaluation_chunk
from transducer_gn.model.subsampling import FACTOR, OVERLAP
from transducer_gn.search.beam import beam_search
from transducer_gn.search.greedy import greedy_search
from transducer_gn.search.streaming import RecognitionStream, StreamingRecognizer

SECONDS_PER_FEATURE = 0.01


@dataclass(frozen=True)
class RecognitionSettings:
    """How to recognise.

    Args:
        method: "beam" or "greedy"
        beam: hypotheses that the beam search keeps
        streaming: "simulated" runs whole utterances under a mask of chunks, "chunks" runs them truly chunk by chunk,
            with the same result; "lookahead" lets the model see whole utterances
        chunk: frames of 40 ms in a chunk; null for what the system is configured for, 16 in the paper
        left_context: frames of history that a chunk sees; null for what the system is configured for
        max_tokens_per_frame: most tokens at one frame; null for 3, or for a globally normalised system
            what the sequences in its Z had in training
    """

    method: Literal["beam", "greedy"] = "beam"
    beam: int = 50
    streaming: Literal["simulated", "chunks", "lookahead"] = "simulated"
    chunk: int | None = None
    left_context: int | None = None
    max_tokens_per_frame: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("--beam", self.beam), ("--max-tokens-per-frame", self.max_tokens_per_frame)):
            require(value is None or value >= 1, name, f"must be at least 1, not {value}")
        limited = self.chunk is not None or self.left_context is not None
        require(self.streaming != "lookahead" or not limited, "--chunk", "lookahead has no chunks and no left context")
        require(
            self.streaming != "chunks" or self.method == "beam", "--method", "chunk by chunk only beam search is there"
        )

    def chunk_of(self, system: System) -> Chunk:
        """What a frame sees."""
        own = evaluation_chunk(system.config.model.streaming)
        if self.streaming == "lookahead":
            return FULL_CONTEXT
        size = self.chunk if self.chunk is not None else own.size
        left = self.left_context if self.left_context is not None else own.left
        require(
            size is None or system.config.model.encoder.causal, "--chunk", "this system looks ahead and has no chunks"
        )
        return FULL_CONTEXT if size is None else Chunk(size, left)

    def tokens_per_frame_of(self, system: System) -> int:
        """Most tokens at one frame."""
        return self.max_tokens_per_frame or system.max_tokens_per_frame

    def describe(self, system: System) -> str:
        """A name for files."""
        chunk = self.chunk_of(system)
        how = "lookahead" if chunk.size is None else f"streaming-chunk-size-{chunk.size}-left-context-{chunk.left}"
        kind = "chunk-by-chunk-" if self.streaming == "chunks" else ""
        search = f"beam-{self.beam}" if self.method == "beam" else "greedy"
        return f"{kind}{how}-{search}"


def recognition_identity(system: System, settings: RecognitionSettings, data: PreparedData, part: str) -> dict[str, Any]:
    """Everything that hypotheses for a set depend on."""
    manifest = data.folder / "fbank" / f"cuts_{part}.jsonl.gz"
    return {
        "parameters": system.fingerprint,
        "alpha": system.alpha,
        "settings": asdict(settings),
        "tokens_per_frame": settings.tokens_per_frame_of(system),
        "utterances": file_fingerprint(manifest) if manifest.is_file() else None,
    }


@dataclass(frozen=True)
class Shown:
    """What a streaming recogniser shows at one moment.

    Attributes:
      seconds: of audio that have been heard by then.
    """

    seconds: float
    words: list[str]


@torch.no_grad()
def recognise(system: System, batch: Batch, settings: RecognitionSettings) -> list[Recognised]:
    """Recognise the utterances of a batch, which is on the system's device."""
    if settings.streaming == "chunks":
        texts = [history[-1].words for history in show(system, batch, settings)]
    else:
        texts = [text.split() for text in whole_utterances(system, batch, settings)]
    return [
        Recognised(
            id=batch.ids[i],
            reference=batch.texts[i].split(),
            hypothesis=texts[i],
            kind=batch.kinds[i],
            pair=blended_pair(batch.custom[i]),
            twin=batch.custom[i].get("twin") or "",
        )
        for i in range(len(batch))
    ]


def blended_pair(custom: dict[str, Any]) -> tuple[str, ...]:
    """The two words that an utterance's blended sound may be, from what the manifest says about the utterance."""
    return tuple(custom.get("pair", ()))


def whole_utterances(system: System, batch: Batch, settings: RecognitionSettings) -> list[str]:
    """Texts of a batch, by one encoder pass under the mask of chunks."""
    chunk = settings.chunk_of(system)
    encoder_out, frame_lengths = system.model.encoder(batch.features, batch.feature_lengths, chunk)
    common = dict(alpha=system.alpha, max_tokens_per_frame=settings.tokens_per_frame_of(system))
    try:
        if settings.method == "greedy":
            found = greedy_search(system.model, encoder_out, frame_lengths, **common)
        else:
            found = beam_search(system.model, encoder_out, frame_lengths, settings.beam, 1, **common)
    except ValueError as error:
        raise UserError(f"cannot recognise the batch of {batch.ids[0]}: {error}") from error
    return [system.tokenizer.decode(hypotheses[0]) for hypotheses in found.tokens]


def show(system: System, batch: Batch, settings: RecognitionSettings) -> list[list[Shown]]:
    """What each utterance of a batch shows after each chunk; the last entry is the final text."""
    chunk = settings.chunk_of(system)
    recognizer = StreamingRecognizer(
        system.model, system.tokenizer, chunk, settings.beam, system.alpha, settings.tokens_per_frame_of(system)
    )
    streams = [recognizer.open() for _ in range(len(batch))]
    for stream, features, length in zip(streams, batch.features.cpu(), batch.feature_lengths.tolist(), strict=True):
        stream.add_features(features[:length])
        stream.end()
    histories: list[list[Shown]] = [[] for _ in streams]
    for number, ready in enumerate(_rounds(recognizer, streams), start=1):
        # A chunk can be encoded as soon as its features and the few that the subsampling sees ahead are there.
        heard = SECONDS_PER_FEATURE * (number * FACTOR * chunk.size + OVERLAP - 1)
        for position in ready:
            words = streams[position].partial().text.split()
            histories[position].append(Shown(min(heard, streams[position].seconds), words))
    return [history or [Shown(stream.seconds, [])] for history, stream in zip(histories, streams, strict=True)]


def _rounds(recognizer: StreamingRecognizer, streams: list[RecognitionStream]) -> Iterator[list[int]]:
    """Recognise one chunk of each stream after another; yields the streams that had one."""
    while ready := [position for position, stream in enumerate(streams) if stream.is_ready]:
        recognizer.step([streams[position] for position in ready])
        yield ready
