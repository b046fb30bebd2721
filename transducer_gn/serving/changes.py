"""What was shown and is not said any more: the words of a text that a newer text does not have at their place."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from transducer_gn.recognition.transcript import Word


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A word that was taken back.

    Attributes:
        word: as it was shown
        place: how many words of the new text stand before it
        instead: what stands there now, of several withdrawn at once only for the first; empty if nothing does
    """

    word: Word
    place: int
    instead: str


def withdrawn_words(before: Sequence[Word], now: Sequence[Word]) -> list[Withdrawn]:
    """Words of `before` that are not in `now`, by the longest stretches that both have.

    The last word of `before` may have been cut short by the end of what was heard: if it goes on, it is not withdrawn.
    """
    found = []
    matcher = SequenceMatcher(None, [word.text for word in before], [word.text for word in now], autojunk=False)
    for tag, first, last, start, end in matcher.get_opcodes():
        if tag not in ("replace", "delete"):
            continue
        gone = list(before[first:last])
        if last == len(before) and any(word.text.startswith(gone[-1].text) for word in now[start:end]):
            gone.pop()
        instead = " ".join(word.text for word in now[start:end][: len(gone)])
        found += [Withdrawn(word, start, "" if number else instead) for number, word in enumerate(gone)]
    return found
