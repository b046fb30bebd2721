"""What a front end is: the way from audio to the feature vectors that the encoder reads.

There are two kinds, filter banks and pretrained encoders. Those who store features, train or recognise know a front
end by this protocol and count frames by its framing.
"""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from transducer_gn.common.framing import Framing


class OnlineFeatures(Protocol):
    """The audio of one stream on its way to feature vectors; what there is to compute is done by `FrontEnd.advance`."""

    @property
    def is_ready(self) -> bool:
        """Whether there is something to compute."""
        ...

    def accept(self, samples: Tensor) -> None:
        """Take more `samples` [m] between -1 and 1."""
        ...

    def finish(self) -> None:
        """Say that there will be no more."""
        ...


class FrontEnd(Protocol):
    """Audio to feature vectors, of whole utterances or of streams; both give the same vectors."""

    @property
    def framing(self) -> Framing:
        """How vectors and encoder frames lie in time."""
        ...

    @property
    def is_batched(self) -> bool:
        """Whether streams gain from being computed together, so that their audio waits for the others'."""
        ...

    def compute(self, samples: Tensor) -> Tensor:
        """Feature vectors [T, F] of a whole utterance of `samples` [N] between -1 and 1."""
        ...

    def open(self) -> OnlineFeatures:
        """A new stream."""
        ...

    def advance(self, streams: Sequence[OnlineFeatures]) -> list[Tensor]:
        """The new feature vectors [n, F] of each of this front end's streams, computed together where that helps."""
        ...

    def fingerprint(self) -> dict[str, object]:
        """All that the vectors depend on, as plain values: what is stored beside features and compared."""
        ...
