"""Live recognition: audio in pieces of any size, text as it becomes known, many streams in one batched step.

The features, the encoder's frames and the beam are those of a whole-utterance search under the same chunk mask, so the
final text is the same however the audio is cut and whichever streams share a step.

A stream is a front end, the encoder's queue of features, and a beam; it computes nothing by itself. A recogniser
advances any number of streams together. `LiveStream` is the two in one for those who have a single stream.
"""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from transducer_gn.common.errors import UserError
from transducer_gn.common.units import SAMPLING_RATE
from transducer_gn.config import SHOW_ALL, DisplayConfig
from transducer_gn.model.encoder_stream import EncoderStream, StreamingEncoder
from transducer_gn.model.front_end import FrontEnd
from transducer_gn.recognition.audio import check_samples
from transducer_gn.recognition.beam_text import BeamText
from transducer_gn.recognition.transcript import Revisions, Spelling, Transcript
from transducer_gn.search.beam import BeamSearch, advance_over


@torch.no_grad()
def advance_texts(search: BeamSearch, texts: list[BeamText], frames: list[Tensor]) -> None:
    """Take the beam of each utterance over its new encoder frames [n, D], of which there may be none, in one batch."""
    rows = [row for row, own in enumerate(frames) if len(own)]
    if not rows:
        return
    padded = pad_sequence([frames[row] for row in rows], batch_first=True)
    advance_over(search, [texts[row].beam for row in rows], padded, [len(frames[row]) for row in rows])
    for row in rows:
        texts[row].update()


class RecognitionStream:
    """One utterance on its way; made by `StreamingRecogniser.open`, which also recognises what it has taken.

    Attributes:
        online: the front end's side of the stream, with audio that is no features yet
        encoder: the encoder's side of the stream, with the only queue of features
        text: what was recognised
    """

    def __init__(self, front_end: FrontEnd, encoder: EncoderStream, text: BeamText, tail: Tensor | None = None) -> None:
        self.online = front_end.open()
        self.encoder = encoder
        self.text = text
        self._front_end = front_end
        self._tail = tail
        self._samples = 0
        self._ended = False

    @property
    def seconds(self) -> float:
        """Audio received."""
        return self._samples / SAMPLING_RATE

    @property
    def is_ready(self) -> bool:
        """Whether there is a chunk to recognise."""
        return self.text.error is None and (self.encoder.is_ready or self.online.is_ready)

    @property
    def finished(self) -> bool:
        """Whether nothing more will change: all is recognised up to the end, or the stream has failed."""
        return self.text.error is not None or (self.encoder.ended and not self.encoder.is_ready)

    @property
    def revisions(self) -> Revisions:
        """How often and how far back the text was changed."""
        return self.text.revisions

    def add(self, samples: Tensor | np.ndarray, sampling_rate: int = SAMPLING_RATE) -> None:
        """Take more samples [n], any number; UserError if they are not what is needed."""
        self._check_open()
        samples = check_samples(samples, sampling_rate, SAMPLING_RATE)
        self._samples += len(samples)
        self.online.accept(samples)
        self._compute_unless_batched()

    def add_features(self, features: Tensor) -> None:
        """Take feature frames [n, F] in place of samples."""
        self._check_open()
        self._samples += self._front_end.framing.samples(len(features))
        self.encoder.accept(features)

    def end(self) -> None:
        """Say that the audio has ended; what is left of it can then be recognised."""
        self._check_open()
        if self._samples == 0:
            raise UserError("the stream has ended without any audio")
        self._ended = True
        self.online.finish()
        self._compute_unless_batched()
        self._end_encoder()

    def take_features(self, features: Tensor) -> None:
        """Take feature vectors [n, F] that the front end has made of the audio so far."""
        self.encoder.accept(features)
        self._end_encoder()

    def partial(self) -> Transcript:
        """What is known; UserError if the stream has failed."""
        return self.text.transcript(final=self.finished)

    def _check_open(self) -> None:
        if self.text.error is not None:
            raise UserError(self.text.error)
        if self._ended:
            raise UserError("the stream has ended and takes no more audio")

    def _compute_unless_batched(self) -> None:
        if not self._front_end.is_batched:
            (features,) = self._front_end.advance([self.online])
            self.encoder.accept(features)

    def _end_encoder(self) -> None:
        """Tell the encoder of the end once there is nothing more to come from the front end."""
        if self._ended and not self.online.is_ready:
            if self._tail is not None and len(self._tail):
                self.encoder.accept(self._tail)
            self.encoder.end()


class StreamingRecogniser:
    """Recognises any number of streams with one model, whose parameters must not change any more.

    Open a stream for each utterance, `add` audio to each as it comes, and call `advance` with all of them.

    Args:
        front_end: makes feature vectors of audio
        encoder: of the model, with the chunks that are recognised together
        search: over the same model
        tokenizer: spells tokens
        tail: [n, F] feature frames that follow an utterance; None for none
        display: what streams show of their texts
    """

    def __init__(
        self,
        front_end: FrontEnd,
        encoder: StreamingEncoder,
        search: BeamSearch,
        tokenizer: Spelling,
        tail: Tensor | None = None,
        display: DisplayConfig = SHOW_ALL,
    ) -> None:
        self.front_end = front_end
        self.encoder = encoder
        self.search = search
        self.tokenizer = tokenizer
        self.tail = tail
        self.display = display

    @property
    def chunk_seconds(self) -> float:
        """Seconds from one step of a stream to the next."""
        return self.encoder.framing.frame_shift * self.encoder.size

    @torch.no_grad()
    def open(self) -> RecognitionStream:
        """A new stream."""
        text = BeamText(self.search.start(1)[0], self.tokenizer, self.encoder.framing, self.display)
        return RecognitionStream(self.front_end, self.encoder.open(), text, self.tail)

    def advance(self, streams: Iterable[RecognitionStream]) -> None:
        """Recognise all chunks that are complete. A stream that fails says so in its text; the others go on."""
        streams = list(streams)
        while ready := [stream for stream in streams if stream.is_ready]:
            self.step(ready)

    def step(self, streams: list[RecognitionStream]) -> None:
        """Recognise one chunk of each of the streams, all of which are ready, in one batch."""
        heard = [stream for stream in streams if stream.online.is_ready]
        for stream, new in zip(heard, self.front_end.advance([stream.online for stream in heard]), strict=True):
            stream.take_features(new)
        frames = self.encoder.step([stream.encoder for stream in streams])
        advance_texts(self.search, [stream.text for stream in streams], frames)


class LiveStream:
    """One stream that is recognised as its audio comes.

    Args:
        recogniser: recognises it; several live streams may share one
    """

    def __init__(self, recogniser: StreamingRecogniser) -> None:
        self._recogniser = recogniser
        self._stream = recogniser.open()

    @property
    def seconds(self) -> float:
        """Audio received."""
        return self._stream.seconds

    @property
    def revisions(self) -> Revisions:
        """How often and how far back the text was changed."""
        return self._stream.revisions

    def accept(self, samples: Tensor | np.ndarray, sampling_rate: int = SAMPLING_RATE) -> Transcript:
        """Take more samples, recognise what is complete, and say what is known.

        Args:
            samples: [n] mono, any number; floats between -1 and 1, or 16-bit integers
            sampling_rate: of these samples; any but the system's is refused
        """
        self._stream.add(samples, sampling_rate)
        return self.partial()

    def finish(self) -> Transcript:
        """Recognise the rest; gives the final text."""
        self._stream.end()
        return self.partial()

    def partial(self) -> Transcript:
        """What is known; UserError if the stream has failed."""
        self._recogniser.advance([self._stream])
        return self._stream.partial()
