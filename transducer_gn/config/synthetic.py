"""Settings of the mini corpus."""

from dataclasses import dataclass

from transducer_gn.common.errors import require


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
        seed: all audio and text depend on this number and on nothing else
    """

    train: int = 8000
    dev: int = 600
    test: int = 1500
    ambiguous: float = 0.5
    control: float = 0.1
    speakers_per_voice: int = 2
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
