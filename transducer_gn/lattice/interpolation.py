"""The interpolation between local and global normalisation: the one formula of the paper that everything shares.

An arc that leaves a lattice point has the raw weight `logits`, and all V of them sum to `log_sum`. Local normalisation
subtracts `log_sum` at every point; global normalisation subtracts nothing there and log Z once at the end. Between them
lies alpha: 1 is local, 0 is global.
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Interpolation:
    """Normalisation by the interpolation weight `alpha`, from 1 (local) to 0 (global)."""

    alpha: float

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha is {self.alpha}; it must be between 0 (global) and 1 (local)")

    @property
    def is_local(self) -> bool:
        """Whether weights are normalised at every point, so that Z has no say."""
        return self.alpha == 1

    def weights(self, logits: Tensor, log_sums: Tensor) -> Tensor:
        """Interpolated weights [...] of arcs from their raw weights [...] and the log-sums [...] of their points."""
        return logits - self.alpha * log_sums

    def loss(self, log_normalisers: Tensor, numerators: Tensor) -> Tensor:
        """The objective [B] of utterances from log Z [B] and the interpolated scores [B] of their references."""
        return (1 - self.alpha) * log_normalisers - numerators
