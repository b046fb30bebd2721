"""What a beam search is asked for."""

from dataclasses import dataclass

from transducer_gn.config.evaluation import DEFAULT_TOKENS_PER_FRAME
from transducer_gn.lattice.interpolation import Interpolation


@dataclass(frozen=True)
class SearchRules:
    """How to search; ValueError if this makes no sense.

    Attributes:
        beam: K, hypotheses kept per utterance
        alpha: weight of local normalisation, from 0 to 1
        max_tokens_per_frame: S, most tokens between two blanks
        graph: whether the steps of a frame are replayed as graphs where there is CUDA
    """

    beam: int
    alpha: float
    max_tokens_per_frame: int = DEFAULT_TOKENS_PER_FRAME
    graph: bool = True

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise ValueError(f"beam must be at least 1, not {self.beam}")
        if self.max_tokens_per_frame < 1:
            raise ValueError(f"max_tokens_per_frame must be at least 1, not {self.max_tokens_per_frame}")
        Interpolation(self.alpha)

    @property
    def interpolation(self) -> Interpolation:
        """The normalisation."""
        return Interpolation(self.alpha)
