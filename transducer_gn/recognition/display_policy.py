"""What to show of a text that may still change: all of it, what has been best for a while, or what is settled.

A word is held back together with all words after it. Time is that of the audio, and looked at where there are new
frames: a word has been best for so many milliseconds if it was so at all steps since then. Nothing here needs torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from transducer_gn.config.evaluation import SHOW_ALL, DisplayConfig
from transducer_gn.recognition.transcript import Transcript

# A hair less than a microsecond: sums of steps of 0.01 s are not exact.
ROUNDING = 1e-7


@dataclass(frozen=True)
class Shown:
    """What a streaming recogniser shows at one moment.

    Attributes:
        seconds: of audio that have been heard by then
        words: of the text that is shown
        stable: how many of the first words will not change any more
        computed: seconds that the step took
    """

    seconds: float
    words: list[str]
    stable: int = 0
    computed: float = 0.0


def common_beginning(first: Sequence[str], second: Sequence[str]) -> int:
    """How many words two texts have in common before they differ."""
    differs = (place for place, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    return next(differs, min(len(first), len(second)))


def stable_words(transcript: Transcript, final: bool) -> int:
    """How many of a transcript's words will not change any more; all of them at the end.

    The last word of the stable text does not count, since it may still grow.
    """
    if final:
        return len(transcript.words)
    settled = transcript.stable.split()
    return common_beginning(settled[:-1], [word.text for word in transcript.words])


@dataclass
class Presenter:
    """Follows one text and says how many of its words to show.

    Attributes:
        config: what to show
        visible: how many of the words of the last update to show
    """

    config: DisplayConfig
    visible: int = 0
    _words: list[str] = field(default_factory=list)
    # For each word since when it and all before it have been there.
    _since: list[float] = field(default_factory=list)

    def update(self, words: list[str], stable: int, seconds: float) -> int:
        """Take the best hypothesis after so many seconds, of which the first `stable` words are settled."""
        kept = common_beginning(self._words, words)
        self._since = self._since[:kept] + [seconds] * (len(words) - kept)
        self._words = words
        # Later words have been there for at most as long as earlier ones.
        oldest = seconds - self.config.hold_ms / 1000 + ROUNDING
        held = stable if self.config.show == "stable" else sum(since <= oldest for since in self._since)
        self.visible = max(stable, held)
        return self.visible


def present(history: Sequence[Shown], config: DisplayConfig) -> list[Shown]:
    """What would have been shown of a history of all text; the last entry is the final text, which is always shown."""
    if config == SHOW_ALL:
        return list(history)
    presenter = Presenter(config)
    shown = []
    for moment in history:
        visible = presenter.update(moment.words, moment.stable, moment.seconds)
        shown.append(replace(moment, words=moment.words[:visible], stable=min(moment.stable, visible)))
    return [*shown[:-1], *history[-1:]]


def cut_short(transcript: Transcript, visible: int) -> Transcript:
    """The first `visible` words of a transcript."""
    words = transcript.words[:visible]
    text = " ".join(word.text for word in words)
    stable = transcript.stable if text.startswith(transcript.stable) else text
    return Transcript(text=text, stable=stable, words=words)
