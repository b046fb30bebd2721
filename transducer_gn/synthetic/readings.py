"""How the weight of the two readings of an ambiguous sound moves as audio arrives.

After every frame the hypotheses of a beam share out its weight: those that have the one word of the pair, those that
have the other, and those that have neither yet. A locally normalised model cannot move weight between the two once they
are told apart, except by pruning; a globally normalised one can.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from lhotse import CutSet
from torch import Tensor

from transducer_gn.config import RecognitionConfig
from transducer_gn.data.batches import Batch, BatchDataset, Inputs, NumberedCuts
from transducer_gn.data.labels import group_of, time_spans
from transducer_gn.data.prepared import PreparedData
from transducer_gn.recognition.system import System
from transducer_gn.search.beam import BeamSearch
from transducer_gn.synthetic.sentences import AMBIGUOUS

BEAM = 10
# Utterances that the average is taken over.
MOST_UTTERANCES = 100


@dataclass(frozen=True)
class Readings:
    """One utterance under one system.

    Attributes:
        words: the word of the pair that the reference has, and the other
        seconds: end of each frame
        right: share of the beam's weight of the right reading, after each frame
        wrong: the same of the other reading
        blend: start and end of the ambiguous sound in seconds; None if not known
        settling: the same of the word that tells
    """

    id: str
    text: str
    words: tuple[str, str]
    seconds: list[float]
    right: list[float]
    wrong: list[float]
    blend: tuple[float, float] | None
    settling: tuple[float, float] | None


@torch.no_grad()
def follow_readings(system: System, batch: Batch) -> list[Readings]:
    """Run a beam over the utterances of a batch, all of which have a pair, and look at it after every frame."""
    settings, framing = RecognitionConfig(), system.model.encoder.framing
    encoder_out, lengths = system.model.encode(batch.features, batch.feature_lengths, system.chunk(settings))
    search = BeamSearch(system.model, BEAM, system.alpha, system.tokens_per_frame(settings))
    frames = search.project(encoder_out)
    beams = search.start(len(batch))
    words = [both_words(batch, i) for i in range(len(batch))]
    shares: list[list[tuple[float, float]]] = [[] for _ in batch.ids]
    for t in range(frames.shape[1]):
        search.advance(beams, frames[:, t])
        found = search.hypotheses(beams)
        for i in range(len(batch)):
            if t < lengths[i]:
                texts = [system.tokenizer.decode(tokens).split() for tokens in found.tokens[i]]
                shares[i].append(reading_shares(texts, torch.tensor(found.scores[i]), words[i]))
    return [
        Readings(
            id=batch.ids[i],
            text=batch.texts[i],
            words=words[i],
            seconds=[framing.emission_seconds(t + 1) for t in range(len(shares[i]))],
            right=[right for right, _ in shares[i]],
            wrong=[wrong for _, wrong in shares[i]],
            blend=time_spans(batch.custom[i]).get("blend"),
            settling=time_spans(batch.custom[i]).get("settling"),
        )
        for i in range(len(batch))
    ]


def both_words(batch: Batch, utterance: int) -> tuple[str, str]:
    """The word of the pair that the reference has, and the other."""
    first, second = batch.custom[utterance]["pair"]
    return (first, second) if first in batch.texts[utterance].split() else (second, first)


def reading_shares(texts: Sequence[Sequence[str]], scores: Tensor, words: tuple[str, str]) -> tuple[float, float]:
    """Shares of the weight of texts that have the first and the second word; whichever comes first in a text counts."""
    weights = scores.softmax(0).tolist()
    sums = dict.fromkeys(words, 0.0)
    for text, weight in zip(texts, weights, strict=True):
        reading = next((word for word in text if word in words), None)
        if reading is not None:
            sums[reading] += weight
    return sums[words[0]], sums[words[1]]


def ambiguous_batch(system: System, data: PreparedData, part: str) -> Batch | None:
    """Some ambiguous utterances of a set as one batch; None if it has none."""
    cuts = [cut for cut in data.cuts(part) if is_ambiguous(cut.supervisions[0].custom or {})]
    if not cuts:
        return None
    # Those of one speaker stand together: spread the choice over all.
    chosen = cuts[:: max(1, len(cuts) // MOST_UTTERANCES)][:MOST_UTTERANCES]
    inputs = Inputs.of(system.config.model.front_end)
    dataset = BatchDataset(system.tokenizer, system.config.data.batches, augment=False, inputs=inputs)
    return dataset[NumberedCuts(0, 0, CutSet.from_cuts(chosen))].to(system.device)


def is_ambiguous(custom: Mapping[str, Any]) -> bool:
    """Whether an utterance has a blended word that something settles."""
    return group_of(custom) == AMBIGUOUS and len(custom.get("pair", ())) == 2


def telling_utterance(local: Sequence[Readings], other: Sequence[Readings]) -> str | None:
    """An utterance in which the first system ends up with the wrong reading and the second with the right one.

    Of several, one in which the right reading ends up with twice the other's weight, and of these the one in which the
    settling word comes latest after the blended sound.
    """
    candidates = [
        (b.right[-1] > 2 * b.wrong[-1], wait(a), a.id)
        for a, b in zip(local, other, strict=True)
        if a.right[-1] < a.wrong[-1] and b.right[-1] > b.wrong[-1]
    ]
    return max(candidates)[2] if candidates else None


def wait(readings: Readings) -> float:
    """Seconds from the end of the blended sound to the start of the settling word; 0 if not known."""
    return readings.settling[0] - readings.blend[1] if readings.settling and readings.blend else 0.0


def average_after(readings: Sequence[Readings], grid: Sequence[float]) -> list[float]:
    """Mean share of the right reading among the two, at times `grid` relative to the start of the settling word.

    Utterances count from the moment on at which either reading is in the beam, and keep their last value.
    """
    means = []
    for moment in grid:
        values = [value for r in readings if r.settling and (value := share_at(r, r.settling[0] + moment)) is not None]
        means.append(sum(values) / len(values) if values else float("nan"))
    return means


def share_at(readings: Readings, second: float) -> float | None:
    """The right reading's part of what both have, at a time; None before there is either."""
    last = None
    for end, right, wrong in zip(readings.seconds, readings.right, readings.wrong, strict=True):
        if end > second:
            break
        if right + wrong > 0.01:
            last = right / (right + wrong)
    return last
