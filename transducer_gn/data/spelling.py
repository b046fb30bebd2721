"""Text as LibriSpeech's transcripts are written: words of capital letters and apostrophes, and nothing else."""

import re

# Quotation marks that are apostrophes, too.
APOSTROPHES = str.maketrans("\u2018\u2019", "''")
WORD = re.compile("[A-Z']+")


def transcript_words(text: str, unspoken: re.Pattern[str]) -> list[str]:
    """The words of a text; none if any of them cannot be written so: a number, or one with a letter of other alphabets.

    Args:
        unspoken: characters of a text in capitals that part words and are not heard
    """
    parts = unspoken.sub(" ", text.translate(APOSTROPHES).upper()).split()
    words = [word for part in parts if (word := part.strip("'"))]
    return words if all(map(WORD.fullmatch, words)) else []
