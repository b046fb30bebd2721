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

    @property
    def is_raw(self) -> bool:
        """Whether weights are left as they are."""
        return self.alpha == 0

    def weights(self, logits: Tensor, log_sums: Tensor) -> Tensor:
        """Interpolated weights [...] of arcs from their raw weights [...] and the log-sums [...] of their points."""
        return logits - self._subtracted(log_sums)

    def weights_at_once(self, logits: Tensor, log_sums: Tensor) -> Tensor:
        """The same [...] in a single operation, which may round otherwise."""
        return logits.sub(log_sums, alpha=self.alpha)

    def arcs(self, token_weights: Tensor, blank_weights: Tensor, log_sums: Tensor) -> tuple[Tensor, Tensor]:
        """Interpolated weights of both kinds of arcs in the lattices of token sequences.

        Args:
            token_weights: [..., U, T] raw weights of the tokens
            blank_weights: [..., U + 1, T] raw weights of the blanks
            log_sums: [..., U + 1, T] of the points that they leave

        Returns:
            (token_weights [..., U, T], blank_weights [..., U + 1, T])
        """
        # Multiplied out once, so that in backward, too, alpha meets the sum of both arcs' gradients.
        subtracted = self._subtracted(log_sums)
        return token_weights - subtracted[..., :-1, :], blank_weights - subtracted

    def loss(self, log_normalisers: Tensor | None, numerators: Tensor) -> Tensor:
        """The objective of utterances.

        Args:
            log_normalisers: [B] log Z; None where it was not computed, which only the local loss can do without
            numerators: [B] interpolated scores of the references

        Returns:
            [B] losses
        """
        if log_normalisers is None:
            if not self.is_local:
                raise ValueError(f"alpha is {self.alpha}; log Z may be left out only at alpha 1")
            return -numerators
        return (1 - self.alpha) * log_normalisers - numerators

    def _subtracted(self, log_sums: Tensor) -> Tensor:
        return self.alpha * log_sums
