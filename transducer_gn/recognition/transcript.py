"""What was recognised: words with times; and the text of a stream as it grows: what is settled, what was changed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from transducer_gn.common.framing import Framing

WORD_START = "\u2581"


class Spelling(Protocol):
    """What is needed of a token model."""

    @property
    def pieces(self) -> list[str]:
        """The piece of each id."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word and its times.

    Attributes:
        text: the word
        start: when its first token was emitted, in seconds from the beginning
        end: when the frame of its last token ended
    """

    text: str
    start: float
    end: float


@dataclass(frozen=True)
class Transcript:
    """What a recording says, or a stream so far.

    Attributes:
        text: the best hypothesis
        stable: the beginning of it that no hypothesis of the beam disputes any more: it will not change. All of it
            once the audio has ended
        words: the words of `text` with their times
    """

    text: str
    stable: str
    words: list[Word]


@dataclass
class Revisions:
    """How often and how far back the best hypothesis was changed, rather than continued.

    Attributes:
        updates: how many times there were new frames
        changes: how many of these withdrew tokens that had been shown
        tokens_withdrawn: tokens withdrawn in all
        most_tokens: most tokens withdrawn at once
        most_seconds: largest distance from the end of the audio so far to the first token withdrawn
    """

    updates: int = 0
    changes: int = 0
    tokens_withdrawn: int = 0
    most_tokens: int = 0
    most_seconds: float = 0.0

    def record(self, withdrawn: int, seconds_back: float) -> None:
        """Count one update that withdrew `withdrawn` tokens, the first of them `seconds_back` ago."""
        self.updates += 1
        if withdrawn:
            self.changes += 1
            self.tokens_withdrawn += withdrawn
            self.most_tokens = max(self.most_tokens, withdrawn)
            self.most_seconds = max(self.most_seconds, seconds_back)


@dataclass
class GrowingTranscript:
    """Tokens of the best hypothesis: settled ones, which only ever grow, and the rest, which may change.

    Settled words are kept as text, so that a long stream does not spell them out again at each update.

    Attributes:
        tokenizer: spells tokens
        framing: when frames are emitted
        revisions: what was changed so far
    """

    tokenizer: Spelling
    framing: Framing
    revisions: Revisions = field(default_factory=Revisions)
    _words: list[Word] = field(default_factory=list)
    _settled_text: str = ""
    # Settled tokens and frames of a word whose end is not settled yet, and those that are not settled at all.
    _open: list[tuple[int, int]] = field(default_factory=list)
    _tail: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._starts_word = [piece.startswith(WORD_START) for piece in self.tokenizer.pieces]

    def update(self, settled: list[tuple[int, int]], tail: list[tuple[int, int]], frames: int) -> None:
        """Take the best hypothesis after `frames` frames, as pairs of token and frame.

        Args:
            settled: what has become settled since the last update
            tail: what follows all settled tokens
            frames: encoder frames so far
        """
        self._record(settled + tail, frames)
        self._open += settled
        self._tail = tail
        groups = self._group(self._open)
        # The last word may go on: it stays open until the next one begins.
        for group in groups[:-1]:
            word = self._word(group)
            self._words.append(word)
            self._settled_text = f"{self._settled_text} {word.text}" if self._settled_text else word.text
        self._open = groups[-1] if groups else []

    def so_far(self) -> Transcript:
        """The text as it stands."""
        open_words = [self._word(group) for group in self._group(self._open + self._tail)]
        settled_words = [self._word(group) for group in self._group(self._open)]
        return Transcript(text=self._join(open_words), stable=self._join(settled_words), words=self._words + open_words)

    def take(self) -> tuple[list[Word], list[Word]]:
        """Whole words that became settled since the last call, which are forgotten here, and the words after them.

        For streams without end: what is kept does not grow with what was said.
        """
        taken, self._words, self._settled_text = self._words, [], ""
        return taken, [self._word(group) for group in self._group(self._open + self._tail)]

    def spelt(self, tokens: Sequence[int]) -> list[str]:
        """The words that would follow the whole settled ones if `tokens` came after all settled tokens."""
        groups = self._group(self._open + [(token, 0) for token in tokens])
        return [self.tokenizer.decode([token for token, _ in group]) for group in groups]

    def _join(self, words: list[Word]) -> str:
        return " ".join(([self._settled_text] if self._settled_text else []) + [word.text for word in words])

    def _group(self, tokens: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
        """Tokens and frames by word."""
        groups: list[list[tuple[int, int]]] = []
        for token, frame in tokens:
            if not groups or self._starts_word[token]:
                groups.append([])
            groups[-1].append((token, frame))
        return groups

    def _word(self, group: list[tuple[int, int]]) -> Word:
        text = self.tokenizer.decode([token for token, _ in group])
        start, end = (self.framing.emission_seconds(frame) for frame in (group[0][1], group[-1][1] + 1))
        return Word(text, start, end)

    def _record(self, now: list[tuple[int, int]], frames: int) -> None:
        """Compare with what was shown before."""
        kept = 0
        for (before, _), (after, _) in zip(self._tail, now, strict=False):
            if before != after:
                break
            kept += 1
        withdrawn = self._tail[kept:]
        back = frames - withdrawn[0][1] if withdrawn else 0
        self.revisions.record(len(withdrawn), back * self.framing.frame_shift)
