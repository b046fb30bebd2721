"""The text of one utterance as its beam has it. Nothing here needs torch."""

from collections.abc import Sequence
from dataclasses import replace

from transducer_gn.common.errors import UserError
from transducer_gn.common.framing import Framing
from transducer_gn.config.evaluation import SHOW_ALL, DisplayConfig
from transducer_gn.recognition.display_policy import Presenter, cut_short, stable_words
from transducer_gn.recognition.transcript import GrowingTranscript, Revisions, Spelling, Transcript, Word
from transducer_gn.search.hypotheses import Beam


class BeamText:
    """The beam of one utterance, the text that it stands for, and what is shown of it.

    Attributes:
        beam: hypotheses after the frames so far
        error: the sentence that says why nothing can be recognised any more; None while all is well
    """

    def __init__(self, beam: Beam, tokenizer: Spelling, framing: Framing, display: DisplayConfig = SHOW_ALL) -> None:
        self.beam = beam
        self._presenter = None if display == SHOW_ALL else Presenter(display)
        self._framing = framing
        self.error: str | None = None
        self._transcript = GrowingTranscript(tokenizer, framing)

    @property
    def revisions(self) -> Revisions:
        """How often and how far back the text was changed."""
        return self._transcript.revisions

    def update(self) -> None:
        """See what the beam makes of new frames."""
        if self.beam.faulty:
            self.error = "the model gives weights that are NaN or infinitely large for this audio"
            return
        self._transcript.update(*self.beam.settle(), self.beam.frames)
        if self._presenter is not None:
            so_far = self._transcript.so_far()
            seconds = self._framing.frame_shift * self.beam.frames
            self._presenter.update([word.text for word in so_far.words], stable_words(so_far, False), seconds)

    def take(self) -> tuple[list[Word], list[Word]]:
        """Words that became settled since the last call, and those that may change; see `GrowingTranscript.take`."""
        self._check()
        return self._transcript.take()

    def spelt(self, tokens: Sequence[int]) -> list[str]:
        """Words that would follow the whole settled ones if `tokens` came after all settled tokens."""
        return self._transcript.spelt(tokens)

    def transcript(self, final: bool) -> Transcript:
        """The text as it is shown, all of it and stable if it is final; UserError if recognition has failed."""
        self._check()
        transcript = self._transcript.so_far()
        if final:
            # After the end nothing changes any more, whatever the other hypotheses of the beam say.
            return replace(transcript, stable=transcript.text)
        return transcript if self._presenter is None else cut_short(transcript, self._presenter.visible)

    def _check(self) -> None:
        if self.error is not None:
            raise UserError(self.error)
