"""What a front end is: the way from audio to the feature vectors that the encoder reads.

There are two kinds, filter banks and pretrained encoders. Those who store features, train or recognise know a front
end by this protocol and count frames by its framing.
"""

from typing import Protocol

from torch import Tensor

from transducer_gn.common.framing import Framing


class OnlineFeatures(Protocol):
    """The feature vectors of one stream of audio."""

    def accept(self, samples: Tensor) -> Tensor:
        """Feature vectors [n, F] that are now known, after more `samples` [m] between -1 and 1."""
        ...

    def finish(self) -> Tensor:
        """The remaining feature vectors [n, F]."""
        ...


class FrontEnd(Protocol):
    """Audio to feature vectors, of whole utterances or of streams; both give the same vectors."""

    @property
    def framing(self) -> Framing:
        """How vectors and encoder frames lie in time."""
        ...

    def compute(self, samples: Tensor) -> Tensor:
        """Feature vectors [T, F] of a whole utterance of `samples` [N] between -1 and 1."""
        ...

    def open(self) -> OnlineFeatures:
        """A new stream."""
        ...

    def fingerprint(self) -> dict[str, object]:
        """All that the vectors depend on, as plain values: what is stored beside features and compared."""
        ...
