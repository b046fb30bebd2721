"""Settings of text that is read beside speech."""

from dataclasses import dataclass

from transducer_gn.common.errors import require, require_positive


@dataclass(frozen=True)
class ReadingConfig:
    """Text without speech, from which the predictor learns which tokens follow which.

    Attributes:
        text: a file with a sentence per line, written as the transcripts are; null for none
        weight: of a token that is read, against one of a reference, whatever the number of either
        tokens: how many are read beside each batch
        longest: most tokens of a sentence; what follows is left out
    """

    text: str | None = None
    weight: float = 0.3
    tokens: int = 2000
    longest: int = 200

    def __post_init__(self) -> None:
        require(self.weight >= 0, "reading.weight", f"must be 0 or more, not {self.weight}")
        require_positive("reading", tokens=self.tokens, longest=self.longest)
