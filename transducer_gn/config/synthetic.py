"""Settings of the mini corpus."""

from dataclasses import asdict, dataclass
from typing import Any

from transducer_gn.common.errors import require

# Words that may stand between an ambiguous word and the word that settles it.
ALL_DISTANCES = (0, 1, 2, 3, 4, 5, 6)


@dataclass(frozen=True)
class MiniCorpusConfig:
    """What the mini corpus contains.

    Attributes:
        train: training sentences; the default is what a small model can learn within minutes on two cores
        dev: sentences of the dev part, by other voices
        test: sentences of the test part, by yet other voices
        ambiguous: share of sentences with an ambiguous word and, later, the word that settles it
        control: share of dev and test sentences with an ambiguous word that nothing settles
        speakers_per_voice: speakers (of different speed and pitch) for each espeak-ng voice
        distances: numbers of words that may stand between an ambiguous word and the one that settles it, from 0 to 6;
            with few of them waiting pays, with many it cannot
        seed: all audio and text depend on this number and on nothing else
    """

    train: int = 8000
    dev: int = 600
    test: int = 1500
    ambiguous: float = 0.5
    control: float = 0.1
    speakers_per_voice: int = 2
    distances: tuple[int, ...] = ALL_DISTANCES
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("train", "dev", "test", "speakers_per_voice"):
            value = getattr(self, name)
            require(value >= 1, f"--{name.replace('_', '-')}", f"must be at least 1, not {value}")
        require(
            min(self.ambiguous, self.control) >= 0 and self.ambiguous + self.control <= 1,
            "--ambiguous and --control",
            "must be shares of 0 or more that together are at most 1",
        )
        require(
            len(self.distances) > 0 and set(self.distances) <= set(ALL_DISTANCES),
            "--distances",
            f"must be numbers of words from 0 to {ALL_DISTANCES[-1]}, not {list(self.distances)}",
        )

    def record(self) -> dict[str, Any]:
        """What a corpus was made from; all distances go without saying, as they did before there was a choice."""
        inputs = asdict(self)
        if self.distances == ALL_DISTANCES:
            del inputs["distances"]
        return inputs
