"""The text of one utterance as its beam has it. Nothing here needs torch."""

from dataclasses import replace

from transducer_gn.common.errors import UserError
from transducer_gn.common.framing import Framing
from transducer_gn.recognition.transcript import GrowingTranscript, Revisions, Spelling, Transcript
from transducer_gn.search.hypotheses import Beam


class BeamText:
    """The beam of one utterance and the text that it stands for.

    Attributes:
        beam: hypotheses after the frames so far
        error: the sentence that says why nothing can be recognised any more; None while all is well
    """

    def __init__(self, beam: Beam, tokenizer: Spelling, framing: Framing) -> None:
        self.beam = beam
        self.error: str | None = None
        self._transcript = GrowingTranscript(tokenizer, framing.frame_shift)

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

    def transcript(self, final: bool) -> Transcript:
        """The text as it stands, all of it stable if it is final; UserError if recognition has failed."""
        if self.error is not None:
            raise UserError(self.error)
        transcript = self._transcript.so_far()
        # After the end nothing changes any more, whatever the other hypotheses of the beam say.
        return replace(transcript, stable=transcript.text) if final else transcript
