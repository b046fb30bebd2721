"""The blended words of an utterance: which they are, the errors on them, and their tokens."""

from collections.abc import Mapping, Sequence
from typing import Any

from transducer_gn.evaluation.latency import UtteranceTimes
from transducer_gn.recognition.error_rates import Errors, Recognised, align, count_errors
from transducer_gn.recognition.transcript import WORD_START


def blended_words(custom: Mapping[str, Any]) -> tuple[str, ...]:
    """The two words that an utterance's blended sound may be; none for most utterances."""
    return tuple(custom.get("pair", ()))


def blended_errors(utterance: Recognised) -> Errors:
    """The errors on the words whose sound is a blend: those of the reference that are of the utterance's pair."""
    words = blended_words(utterance.custom)
    return count_errors([(a, b) for a, b in align(utterance.reference, utterance.hypothesis) if a in words])


def blended_tokens(utterance: UtteranceTimes) -> list[bool]:
    """For each token whether it belongs to a word whose sound is a blend."""
    # Files of the first version say so themselves.
    if "blended" in utterance.custom:
        return list(utterance.custom["blended"])
    pair = blended_words(utterance.custom)
    return [text_of(word) in pair for word in grouped(utterance.tokens) for _ in word]


def words_of(pieces: Sequence[str]) -> list[str]:
    """The words that pieces spell."""
    return [text_of(word) for word in grouped(pieces)]


def grouped(pieces: Sequence[str]) -> list[list[str]]:
    """The pieces of each word."""
    words: list[list[str]] = []
    for piece in pieces:
        if not words or piece.startswith(WORD_START):
            words.append([])
        words[-1].append(piece)
    return words


def text_of(word: Sequence[str]) -> str:
    """A word from its pieces."""
    return "".join(word).removeprefix(WORD_START)
