"""Settings of evaluation: which parameters, how to recognise, on what, and which times to measure."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from transducer_gn.common.errors import require
from transducer_gn.common.framing import require_tail

# Tokens per frame that a search emits at most where nothing else is said.
DEFAULT_TOKENS_PER_FRAME = 3


@dataclass(frozen=True)
class SystemConfig:
    """Which parameters of an experiment to use.

    Attributes:
        epoch: the end of this epoch; null for the epoch with the lowest error rate on the dev set, as in the paper
        iter: a checkpoint within an epoch instead, by its number of updates
        avg: average the parameters over this many epochs up to that one; 0 for the parameters as they were
        alpha: interpolation weight to use; null for the one that training had arrived at
    """

    epoch: int | None = None
    iter: int | None = None
    avg: int = 0
    alpha: float | None = None

    def __post_init__(self) -> None:
        require(
            self.epoch is None or self.iter is None, "--iter", "choose an epoch or a checkpoint within one, not both"
        )
        require(self.avg >= 0, "--avg", f"must be 0 or more epochs, not {self.avg}")
        require(self.avg == 0 or self.iter is None, "--avg", "averages are over whole epochs; use --epoch")
        require(self.alpha is None or 0 <= self.alpha <= 1, "--alpha", f"must be from 0 to 1, not {self.alpha}")


@dataclass(frozen=True)
class RecognitionConfig:
    """How to recognise.

    Attributes:
        method: "beam" or "greedy"
        beam: hypotheses that the beam search keeps
        streaming: "simulated" runs whole utterances under a mask of chunks, "chunks" runs them truly chunk by chunk,
            with the same result; "lookahead" lets the model see whole utterances
        chunk: frames in a chunk, of 40 ms with filter banks; null for what the system is configured for, 16 in the
            paper
        left_context: frames of history that a chunk sees; null for what the system is configured for
        max_tokens_per_frame: most tokens at one frame; null for 3, or for a system that was trained with competitors
            what these had
        tail_padding: feature frames of silence after each utterance; null for what the system is configured for
    """

    method: Literal["beam", "greedy"] = "beam"
    beam: int = 50
    streaming: Literal["simulated", "chunks", "lookahead"] = "simulated"
    chunk: int | None = None
    left_context: int | None = None
    max_tokens_per_frame: int | None = None
    tail_padding: int | None = None

    def __post_init__(self) -> None:
        if self.tail_padding is not None:
            require_tail("--tail-padding", self.tail_padding)
        for name, value in (("--beam", self.beam), ("--max-tokens-per-frame", self.max_tokens_per_frame)):
            require(value is None or value >= 1, name, f"must be at least 1, not {value}")
        limited = self.chunk is not None or self.left_context is not None
        require(self.streaming != "lookahead" or not limited, "--chunk", "lookahead has no chunks and no left context")
        require(
            self.streaming != "chunks" or self.method == "beam", "--method", "chunk by chunk only beam search is there"
        )


# For those who use a system rather than measure it: more hypotheses cost time and change few words.
EVERYDAY = RecognitionConfig(beam=4)


@dataclass(frozen=True)
class DisplayConfig:
    """What to show of a text that may still change. Its final form is always shown.

    Attributes:
        show: "all" of the best hypothesis, or only what is "stable": what no hypothesis of the beam disputes
        hold_ms: of the rest, show only what has been best for so many milliseconds of audio
    """

    show: Literal["all", "stable"] = "all"
    hold_ms: int = 0

    def __post_init__(self) -> None:
        require(self.show in ("all", "stable"), "--show", f'must be "all" or "stable", not "{self.show}"')
        require(self.hold_ms >= 0, "--hold-ms", f"must be 0 or more, not {self.hold_ms}")
        require(self.show == "all" or self.hold_ms == 0, "--hold-ms", "what is stable need not be held")

    def describe(self) -> str:
        """A name for tables."""
        if self.show == "stable":
            return "only what is stable"
        return f"what was best for {self.hold_ms} ms" if self.hold_ms else "everything"


SHOW_ALL = DisplayConfig()


@dataclass(frozen=True)
class EvaluationDataConfig:
    """What to evaluate on.

    Attributes:
        data_dir: what prepare.sh made; null for what the system was trained on
        sets: names of the test sets; null for all dev and test sets of the corpus
        max_duration: seconds of audio that are recognised together
    """

    data_dir: Path | None = None
    sets: list[str] | None = None
    max_duration: float = 200.0


@dataclass(frozen=True)
class LatencyConfig:
    """Which times to measure.

    Attributes:
        display: also run the live recogniser, to see when words are shown and last changed
        utterances: measure at most this many of each set, spread evenly over it; null for all
        holds: milliseconds for which words are held back in the table of what steadiness costs; null for one and two
            chunks
    """

    display: bool = True
    utterances: int | None = None
    holds: list[int] | None = None

    def __post_init__(self) -> None:
        require(all(hold > 0 for hold in self.holds or ()), "--holds", f"must be above 0, not {self.holds}")
        require(self.utterances is None or self.utterances > 0, "--utterances", "must be above 0")
