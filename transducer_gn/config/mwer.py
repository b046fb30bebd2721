"""Settings of training for minimum word error rate."""

from dataclasses import dataclass
from typing import Literal, get_args

from transducer_gn.common.errors import require

Unit = Literal["word", "token"]
Scores = Literal["raw", "local", "interpolated"]
ReferencePlace = Literal["always", "found"]


@dataclass(frozen=True)
class MwerConfig:
    """Expected errors: training for minimum word error rate, beside the likelihood objective or instead of it.

    Attributes:
        weight: of the expected errors in the objective, the rest is the likelihood's: 0 for none of them, 1 for them
            alone. Above 0 competitors are searched for at any alpha, 1 included
        unit: errors are counted in words ("word") or in tokens ("token")
        scores: what a list's posterior is the softmax of: sequence scores under raw weights ("raw", two outputs per
            lattice point), under locally normalised ones ("local", all outputs at every point of every competitor), or
            under those of the current alpha ("interpolated", as costly as "local"; what recognition ranks by)
        reference: "always" has the reference in the list; "found" only where it scores as high as the list's last
            competitor, so that the list is what a search brings
    """

    weight: float = 0.0
    unit: Unit = "word"
    scores: Scores = "raw"
    reference: ReferencePlace = "always"

    def __post_init__(self) -> None:
        require(0 <= self.weight <= 1, "mwer.weight", f"must be from 0 to 1, not {self.weight}")
        for name, kind in (("unit", Unit), ("scores", Scores), ("reference", ReferencePlace)):
            value, choices = getattr(self, name), get_args(kind)
            known = " or ".join(f'"{choice}"' for choice in choices)
            require(value in choices, f"mwer.{name}", f'must be {known}, not "{value}"')

    @property
    def is_used(self) -> bool:
        """Whether expected errors are part of the objective, which then needs competitors at any alpha."""
        return self.weight > 0

    def posterior_alpha(self, alpha: float) -> float:
        """The interpolation weight of the scores that posteriors are made of, where that of training is `alpha`."""
        return {"raw": 0.0, "local": 1.0, "interpolated": alpha}[self.scores]
