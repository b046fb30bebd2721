"""Moonshine as a front end: standardised vectors every 20 ms.

A layer's outputs have a few numbers a hundred times as large as the others. Each number is therefore moved and scaled
to mean 0 and deviation 1 over the training data, before vectors are stored or read.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from transducer_gn.common.framing import Framing
from transducer_gn.config.front_end import SAMPLES_PER_MS, FrontEndConfig
from transducer_gn.model.front_end import OnlineFeatures
from transducer_gn.model.moonshine import MoonshineEncoder
from transducer_gn.model.moonshine_context import Context
from transducer_gn.model.moonshine_stream import MoonshineStream, StreamingMoonshine

# Numbers that hardly vary are not blown up.
LEAST_DEVIATION = 1e-3


@dataclass(frozen=True)
class VectorSums:
    """What mean and deviation of vectors are made of, in 64-bit numbers; parts of the data can be added up.

    Attributes:
        count: how many vectors
        total: [F] their sum
        squares: [F] the sum of their squares
    """

    count: int
    total: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, vectors: Tensor) -> "VectorSums":
        """Those of `vectors` [T, F]."""
        numbers = vectors.double()
        # Arrays, since processes that share the work cannot hand tensors to each other once they have ended.
        return cls(len(vectors), numbers.sum(0).cpu().numpy(), numbers.square().sum(0).cpu().numpy())

    def __add__(self, other: "VectorSums") -> "VectorSums":
        return VectorSums(self.count + other.count, self.total + other.total, self.squares + other.squares)


class Standardisation(nn.Module):
    """Moves and scales each number of vectors [..., F]; does nothing until it was fitted."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("deviation", torch.ones(dim))

    def forward(self, vectors: Tensor) -> Tensor:
        """The standardised vectors [..., F]."""
        return (vectors - self.mean) / self.deviation

    @torch.no_grad()
    def fit(self, sums: Iterable[VectorSums]) -> None:
        """Take mean and deviation from the vectors that went into the `sums`."""
        everything = sum(sums, VectorSums(0, np.zeros(()), np.zeros(())))
        if everything.count == 0:
            raise ValueError("there are no vectors to take mean and deviation from")
        mean = everything.total / everything.count
        variance = everything.squares / everything.count - mean**2
        self.mean.copy_(torch.from_numpy(mean))
        self.deviation.copy_(torch.from_numpy(variance.clip(min=LEAST_DEVIATION**2) ** 0.5))


class MoonshineFeatures(nn.Module):
    """The front end `moonshine-tiny`, which satisfies the protocol `FrontEnd`.

    Attributes:
        encoder: the pretrained encoder
        standardisation: what its outputs are moved and scaled by
        context: how far its frames see
    """

    is_batched = True

    def __init__(self, encoder: MoonshineEncoder, config: FrontEndConfig) -> None:
        """Make a front end of a pretrained encoder by its settings: layers, chunk and context."""
        super().__init__()
        self.encoder = encoder.requires_grad_(False)
        if not config.freeze:
            # The convolutions see no more than 56 ms: they have nothing to learn about streams, and cost a third.
            encoder.layers.requires_grad_(True)
            encoder.output_norm.requires_grad_(True)
        self.layers = encoder.chosen_layers(config.layers)
        self.standardisation = Standardisation(encoder.shape.dim * len(self.layers))
        self.context = context_of(config)
        self.framing: Framing = config.framing

    def forward(self, samples: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors of whole utterances, with gradients unless the encoder is frozen.

        Args:
            samples: [B, N] audio between -1 and 1
            lengths: [B] number of samples of each utterance

        Returns:
            [B, T, F] vectors, zero at padding, and their numbers [B]
        """
        vectors, counts = self.encoder.features(samples, lengths, self.context, self.layers)
        valid = torch.arange(vectors.shape[1], device=vectors.device) < counts.unsqueeze(1)
        return self.standardisation(vectors).masked_fill(~valid.unsqueeze(2), 0.0), counts

    @torch.no_grad()
    def compute(self, samples: Tensor) -> Tensor:
        """Vectors [T, F] of a whole utterance of `samples` [N]."""
        samples = samples.to(self.standardisation.mean)
        return self(samples.unsqueeze(0), torch.tensor([len(samples)]))[0][0]

    @torch.no_grad()
    def sums(self, samples: Tensor) -> VectorSums:
        """What an utterance of `samples` [N] adds to the standardisation."""
        length = torch.tensor([len(samples)])
        vectors, _ = self.encoder.features(samples.unsqueeze(0), length, self.context, self.layers)
        return VectorSums.of(vectors[0])

    def open(self) -> "OnlineMoonshine":
        """A new stream."""
        return OnlineMoonshine(StreamingMoonshine(self.encoder, self.context, self.layers))

    @torch.no_grad()
    def advance(self, streams: Sequence[OnlineFeatures]) -> list[Tensor]:
        """The new vectors [n, F] of each stream, in one batch: whole chunks, once `right` more was heard."""
        own = cast(Sequence[OnlineMoonshine], streams)
        if not own:
            return []
        vectors = own[0].streaming.advance([each.stream for each in own])
        return [self.standardisation(new) for new in vectors]

    def fingerprint(self) -> dict[str, object]:
        """All that the vectors depend on."""
        standardisation = [self.standardisation.mean, self.standardisation.deviation]
        return {
            "front_end": "moonshine-tiny",
            "weights": digest(self.encoder.parameters()),
            "layers": list(self.layers),
            "chunk": self.context.chunk,
            "right": self.context.right,
            "left_chunks": self.context.left,
            "standardisation": digest(standardisation),
        }


class OnlineMoonshine:
    """One stream of a front end.

    Attributes:
        streaming: what its chunks are computed by
        stream: audio and memory
    """

    def __init__(self, streaming: StreamingMoonshine) -> None:
        self.streaming = streaming
        self.stream: MoonshineStream = streaming.open()

    @property
    def is_ready(self) -> bool:
        """Whether there is a chunk to compute."""
        return self.streaming.is_ready(self.stream)

    def accept(self, samples: Tensor) -> None:
        """Take more `samples` [m] between -1 and 1."""
        self.stream.accept(samples)

    def finish(self) -> None:
        """Say that there will be no more."""
        self.stream.finish()


def digest(tensors: Iterable[Tensor]) -> str:
    """A checksum of the values of tensors, whatever device they are on."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.detach().cpu().contiguous().numpy().astype("<f4").tobytes())
    return found.hexdigest()


def context_of(config: FrontEndConfig) -> Context:
    """The context that milliseconds stand for."""
    chunk = None if config.chunk is None else config.chunk * SAMPLES_PER_MS
    return Context(chunk, config.right * SAMPLES_PER_MS, config.left_chunks)
