"""How steady and how quick a live text is: the one place where these measures are defined.

Everything here is a function of a *history*: the texts h_1 .. h_n that were shown, as words, h_n the final one, and how
much audio had been heard by then.

Unstable partial word ratio (UPWR, arXiv 2006.01416): words of h_i that h_(i+1) has no longer, as an alignment of fewest
errors pairs the two, summed over all i < n, over the number of final words.

Normalised erasure: words of h_i from the first on that h_(i+1) changes, summed likewise, over the number of final
words. It is what a display must delete that can only delete from its end; a word that comes back counts, too.

Revisions per word: steps at which h_(i+1) does more than continue h_i, over the number of final words. A last word that
only grows (OR, then ORDER) was continued; the two ratios above count it as changed, as they are published.

How far back a revision goes: in words, those that it erases; in seconds, how long the first of them had been shown.

Delays of words: of each word of the reference that is right in the end, when it was first shown and from when on it
stayed, after the true end of the word.

Delay of the final text: when it is there, after the end of the audio.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from transducer_gn.recognition.display_policy import Shown, common_beginning
from transducer_gn.recognition.error_rates import EMPTY, align

# A time in seconds; None for a word that never comes.
Time = float | None


@dataclass(frozen=True)
class Stability:
    """How steady the text of one utterance was.

    Attributes:
        words: of the final text
        unstable: words that the next text did not have any more
        erased: words from the first change on
        words_back: words erased by each revision
        seconds_back: how long the first of these words had been shown, of each revision
    """

    words: int
    unstable: int = 0
    erased: int = 0
    words_back: list[int] = field(default_factory=list)
    seconds_back: list[float] = field(default_factory=list)

    @property
    def revisions(self) -> int:
        """Steps that did more than continue the text."""
        return len(self.words_back)


def stability(history: Sequence[Shown]) -> Stability:
    """How steady a history is, of which there is at least one moment."""
    unstable = erased = 0
    words_back: list[int] = []
    seconds_back: list[float] = []
    # For each word since when it and all before it have been shown.
    since = [history[0].seconds] * len(history[0].words)
    for before, after in pairwise(history):
        kept = common_beginning(before.words, after.words)
        gone, come = before.words[kept:], after.words[kept:]
        unstable += lost_words(gone, come)
        erased += len(gone)
        if gone and not only_grows(gone, come):
            words_back.append(len(gone))
            seconds_back.append(after.seconds - since[kept])
        since = since[:kept] + [after.seconds] * len(come)
    return Stability(len(history[-1].words), unstable, erased, words_back, seconds_back)


def lost_words(before: Sequence[str], after: Sequence[str]) -> int:
    """Words of `before` that `after` does not have in the alignment of fewest errors."""
    return sum(a not in (EMPTY, b) for a, b in align(before, after)) if before else 0


def only_grows(before: Sequence[str], after: Sequence[str]) -> bool:
    """Whether one last word became longer, and nothing else was changed."""
    return len(before) == 1 and len(after) > 0 and after[0].startswith(before[0])


def display_times(reference: list[str], history: Sequence[Shown]) -> tuple[list[Time], list[Time]]:
    """When each word of the reference was first shown, and from when on it stayed; None for words that end up wrong.

    A word is shown when it is in the text that is shown and aligned with itself there: words that come and go before it
    do not count as a change of it.
    """
    first: list[Time] = [None] * len(reference)
    since: list[Time] = [None] * len(reference)
    for moment in history:
        for position, is_there in enumerate(matched(reference, moment.words)):
            if not is_there:
                since[position] = None
            elif since[position] is None:
                since[position] = moment.seconds
                first[position] = moment.seconds if first[position] is None else first[position]
    return [time if end is not None else None for time, end in zip(first, since, strict=True)], since


def matched(reference: list[str], words: list[str]) -> list[bool]:
    """For each word of the reference whether the alignment with `words` pairs it with itself."""
    return [a == b for a, b in align(reference, words) if a != EMPTY]


def delays(times: Sequence[Time], ends: Sequence[Time]) -> list[Time]:
    """How long after the true ends of words something happened; None where either is not known."""
    return [None if time is None or end is None else time - end for time, end in zip(times, ends, strict=True)]


def final_delay(history: Sequence[Shown], duration: float) -> float:
    """Seconds from the end of the audio to the final text."""
    return history[-1].seconds + history[-1].computed - duration
