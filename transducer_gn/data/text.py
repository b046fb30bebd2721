"""Text without speech: sentences drawn from a file, as tokens."""

import random
from pathlib import Path

import numpy
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from transducer_gn.common.errors import UserError
from transducer_gn.data.tokenizer import UNKNOWN, Tokenizer

# Sentences that are looked at to find out whether a text is written as the token model's is.
SAMPLE = 1000
# Share of unknown tokens in them above which it is not.
MOST_UNKNOWN = 0.1
# Sentences are drawn so many times over, and those of similar length taken.
DRAWN = 6
# Blank lines that may be drawn for each sentence. Where there are more, drawing takes longer than training.
MOST_BLANK = 100


class Text:
    """A file with a sentence per line, of which any can be had at once; the file stays on the disk.

    Args:
        path: of the file
        tokenizer: between texts and tokens
        longest: most tokens of a sentence; what follows is left out
    """

    def __init__(self, path: Path, tokenizer: Tokenizer, longest: int) -> None:
        if not path.is_file():
            raise UserError(f"reading.text: there is no file {path}")
        if path.stat().st_size == 0:
            raise UserError(f"reading.text: {path} is empty")
        self._path = path
        self._tokenizer = tokenizer
        self._longest = longest
        self._bytes = numpy.memmap(path, mode="r")
        ends = numpy.flatnonzero(self._bytes == ord("\n"))
        if not len(ends) or ends[-1] != len(self._bytes) - 1:
            ends = numpy.append(ends, len(self._bytes))
        self._ends = ends
        self._starts = numpy.concatenate([[0], ends[:-1] + 1])
        self._check()

    def __len__(self) -> int:
        return len(self._ends)

    def sentence(self, number: int) -> list[int]:
        """The tokens of a line; none of a blank one."""
        line = bytes(self._bytes[self._starts[number] : self._ends[number]])
        try:
            return self._tokenizer.encode(line.decode().strip())[: self._longest]
        except UnicodeDecodeError:
            raise UserError(f"reading.text: line {number + 1} of {self._path} is not UTF-8") from None

    def draw(self, tokens: int, seed: int) -> Tensor:
        """Sentences [B, U], zero at padding, of so many tokens in all, or a few less or more.

        Which ones depends on the seed alone. Of several times as many that are drawn, some of similar length are taken,
        so that little is padding.
        """
        draw = random.Random(seed)
        drawn: list[list[int]] = []
        left, blank = DRAWN * tokens, 0
        while left > 0:
            if sentence := self.sentence(draw.randrange(len(self))):
                drawn.append(sentence)
                left -= len(sentence)
                continue
            blank += 1
            # Ten sentences' worth before the first, which may be long in coming.
            if blank > MOST_BLANK * (len(drawn) + 10):
                raise UserError(
                    f"reading.text: almost all lines of {self._path} are blank, {blank} of {blank + len(drawn)} that "
                    "were drawn; remove them"
                )
        drawn.sort(key=len)
        ends = numpy.cumsum([len(sentence) for sentence in drawn])
        part = draw.randrange(DRAWN)
        taken = drawn[numpy.searchsorted(ends, part * tokens) : numpy.searchsorted(ends, (part + 1) * tokens)]
        return pad_sequence([torch.tensor(sentence) for sentence in taken or drawn[-1:]], batch_first=True)

    def _check(self) -> None:
        """UserError unless the first sentences look like what the token model was trained on."""
        sample = [token for number in range(min(SAMPLE, len(self))) for token in self.sentence(number)]
        if not sample:
            raise UserError(f"reading.text: {self._path} holds no text in its first {SAMPLE} lines")
        unknown = sample.count(UNKNOWN) / len(sample)
        if unknown > MOST_UNKNOWN:
            raise UserError(
                f"reading.text: {unknown:.0%} of the tokens of {self._path} are unknown to the token model; write the "
                "text as the transcripts are written, a sentence per line"
            )
