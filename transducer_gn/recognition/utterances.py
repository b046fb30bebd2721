"""Recognising batches: beam or greedy search, over whole utterances or truly chunk by chunk."""

import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from transducer_gn.common.errors import UserError
from transducer_gn.common.stages import file_fingerprint
from transducer_gn.config import RecognitionConfig
from transducer_gn.data.batches import Batch
from transducer_gn.data.layout import part_manifest
from transducer_gn.data.prepared import PreparedData
from transducer_gn.recognition.display_policy import Shown, stable_words
from transducer_gn.recognition.error_rates import Recognised
from transducer_gn.recognition.stream import RecognitionStream, StreamingRecogniser
from transducer_gn.recognition.system import System
from transducer_gn.search.beam import search_together
from transducer_gn.search.greedy import greedy_search
from transducer_gn.search.rules import SearchRules


def recognition_identity(system: System, settings: RecognitionConfig, data: PreparedData, part: str) -> dict[str, Any]:
    """Everything that hypotheses for a set depend on."""
    manifest = part_manifest(data.folder, part)
    return {
        "parameters": system.fingerprint,
        "alpha": system.alpha,
        "settings": asdict(settings),
        "tokens_per_frame": system.tokens_per_frame(settings),
        "tail_padding": len(system.tail(settings)),
        "utterances": file_fingerprint(manifest) if manifest.is_file() else None,
    }


@torch.no_grad()
def recognise(system: System, batch: Batch, settings: RecognitionConfig) -> list[Recognised]:
    """Recognise the utterances of a batch, which is on the system's device."""
    if settings.streaming == "chunks":
        return recognised(batch, [history[-1].words for history in show(system, batch, settings)])
    padded = with_tail(batch, system.tail(settings))
    encoded = system.model.encode(padded.features, padded.feature_lengths, system.chunk(settings))
    return recognise_frames(system, batch, encoded, settings)


def with_tail(batch: Batch, tail: Tensor) -> Batch:
    """A batch with feature frames [n, F] after the end of each utterance."""
    count = len(tail)
    if count == 0:
        return batch
    features = torch.nn.functional.pad(batch.features, (0, 0, 0, count))
    for row, length in enumerate(batch.feature_lengths.tolist()):
        features[row, length : length + count] = tail
    return replace(batch, features=features, feature_lengths=batch.feature_lengths + count)


def recognise_frames(
    system: System, batch: Batch, encoded: tuple[Tensor, Tensor], settings: RecognitionConfig
) -> list[Recognised]:
    """Recognise the utterances of a batch from the encoder's frames [B, T, D] and their numbers [B]."""
    most = system.tokens_per_frame(settings)
    try:
        if settings.method == "greedy":
            found = greedy_search(system.model, *encoded, max_tokens_per_frame=most)
        else:
            graph = system.config.search.graph == "auto"
            rules = SearchRules(settings.beam, system.alpha, most, graph=graph)
            found = search_together(system.model, [encoded], rules).best(1)
    except ValueError as error:
        raise UserError(f"cannot recognise the batch of {batch.ids[0]}: {error}") from error
    return recognised(batch, [system.tokenizer.decode(hypotheses[0]).split() for hypotheses in found.tokens])


def recognised(batch: Batch, hypotheses: list[list[str]]) -> list[Recognised]:
    """The utterances of a batch with the words that were recognised."""
    return [
        Recognised(
            id=batch.ids[i],
            reference=batch.texts[i].split(),
            hypothesis=hypotheses[i],
            group=batch.groups[i],
            unit=batch.units[i],
            custom=batch.custom[i],
        )
        for i in range(len(batch))
    ]


def show(system: System, batch: Batch, settings: RecognitionConfig) -> list[list[Shown]]:
    """What each utterance of a batch shows after each chunk; the last entry is the final text."""
    recogniser = system.recogniser(settings)
    streams = [recogniser.open() for _ in range(len(batch))]
    for stream, features, length in zip(streams, batch.features, batch.feature_lengths.tolist(), strict=True):
        (stream.add if batch.is_audio else stream.add_features)(features[:length])
        stream.end()
    histories: list[list[Shown]] = [[] for _ in streams]
    framing, size = recogniser.encoder.framing, recogniser.encoder.size
    for number, (ready, computed) in enumerate(_rounds(recogniser, streams), start=1):
        heard = framing.seconds_heard(number * size)
        for position in ready:
            stream = streams[position]
            transcript = stream.partial()
            stable = stable_words(transcript, stream.finished)
            histories[position].append(
                Shown(min(heard, stream.seconds), transcript.text.split(), stable, round(computed, 6))
            )
    return [history or [Shown(stream.seconds, [])] for history, stream in zip(histories, streams, strict=True)]


def _rounds(recogniser: StreamingRecogniser, streams: list[RecognitionStream]) -> Iterator[tuple[list[int], float]]:
    """Recognise one chunk of each stream after another; yields the streams that had one, and the seconds it took."""
    while ready := [position for position, stream in enumerate(streams) if stream.is_ready]:
        began = time.perf_counter()
        recogniser.step([streams[position] for position in ready])
        yield ready, time.perf_counter() - began
