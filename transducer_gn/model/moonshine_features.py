"""Moonshine as a front end: standardised vectors every 20 ms.

A layer's outputs have a few numbers a hundred times as large as the others. Each number is therefore moved and scaled
to mean 0 and deviation 1 over the training data, before vectors are stored or read.
"""

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from transducer_gn.common.framing import Framing
from transducer_gn.config.front_end import SAMPLES_PER_MS, FrontEndConfig
from transducer_gn.model.moonshine import MoonshineEncoder
from transducer_gn.model.moonshine_context import Context
from transducer_gn.model.moonshine_stream import MoonshineStream, StreamingMoonshine

# Numbers that hardly vary are not blown up.
LEAST_DEVIATION = 1e-3


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
    def fit(self, utterances: Iterable[Tensor]) -> None:
        """Take mean and deviation from the vectors [T, F] of `utterances`."""
        count, total, squares = 0, self.mean.double() * 0, self.mean.double() * 0
        for vectors in utterances:
            count += len(vectors)
            total += vectors.double().sum(0)
            squares += vectors.double().square().sum(0)
        if count == 0:
            raise ValueError("there are no vectors to take mean and deviation from")
        mean = total / count
        self.mean.copy_(mean)
        self.deviation.copy_((squares / count - mean.square()).clamp(min=LEAST_DEVIATION**2).sqrt())


class MoonshineFeatures(nn.Module):
    """The front end `moonshine-tiny`, which satisfies the protocol `FrontEnd`.

    Attributes:
        encoder: the pretrained encoder
        standardisation: what its outputs are moved and scaled by
        context: how far its frames see
    """

    def __init__(self, encoder: MoonshineEncoder, config: FrontEndConfig, weights: str) -> None:
        """Make a front end.

        Args:
            encoder: the pretrained encoder
            config: layers, chunk and context
            weights: fingerprint of the encoder's file
        """
        super().__init__()
        self.encoder = encoder.requires_grad_(not config.freeze)
        self.layers = encoder.chosen_layers(config.layers)
        self.standardisation = Standardisation(encoder.shape.dim * len(self.layers))
        self.context = context_of(config)
        self.framing: Framing = config.framing
        self._weights = weights

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
        return self(samples.unsqueeze(0), torch.tensor([len(samples)]))[0][0]

    @torch.no_grad()
    def fit(self, utterances: Iterable[Tensor]) -> None:
        """Take the standardisation from `utterances` of samples [N] each."""
        lengths = ((samples.unsqueeze(0), torch.tensor([len(samples)])) for samples in utterances)
        self.standardisation.fit(
            self.encoder.features(row, length, self.context, self.layers)[0][0] for row, length in lengths
        )

    def open(self) -> "OnlineMoonshine":
        """A new stream."""
        return OnlineMoonshine(StreamingMoonshine(self.encoder, self.context, self.layers), self.standardisation)

    def fingerprint(self) -> dict[str, object]:
        """All that the vectors depend on; weights that are trained along are not named by it."""
        numbers = torch.cat([self.standardisation.mean, self.standardisation.deviation]).cpu().numpy()
        return {
            "front_end": "moonshine-tiny",
            "weights": self._weights,
            "layers": list(self.layers),
            "chunk": self.context.chunk,
            "right": self.context.right,
            "left_chunks": self.context.left,
            "standardisation": hashlib.sha256(numbers.astype("<f4").tobytes()).hexdigest(),
        }


class OnlineMoonshine:
    """The vectors of one stream."""

    def __init__(self, streaming: StreamingMoonshine, standardisation: Standardisation) -> None:
        self._streaming = streaming
        self._standardisation = standardisation
        self._stream: MoonshineStream = streaming.open()

    def accept(self, samples: Tensor) -> Tensor:
        """Vectors [n, F] that are now known, after more `samples` [m]: whole chunks, once `right` more was heard."""
        self._stream.accept(samples)
        return self._advance()

    def finish(self) -> Tensor:
        """The remaining vectors [n, F]."""
        self._stream.finish()
        return self._advance()

    @torch.no_grad()
    def _advance(self) -> Tensor:
        (vectors,) = self._streaming.advance([self._stream])
        return self._standardisation(vectors)


def context_of(config: FrontEndConfig) -> Context:
    """The context that milliseconds stand for."""
    chunk = None if config.chunk is None else config.chunk * SAMPLES_PER_MS
    return Context(chunk, config.right * SAMPLES_PER_MS, config.left_chunks)
