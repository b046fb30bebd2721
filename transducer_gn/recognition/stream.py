"""Live recognition: audio in pieces of any size, text as it becomes known, many streams in one batched step.

The features, the encoder's frames and the beam are those of a whole-utterance search under the same chunk mask, so the
final text is the same however the audio is cut and whichever streams share a step.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from transducer_gn.common.errors import UserError
from transducer_gn.common.units import FRAME_SHIFT, SAMPLING_RATE, SUBSAMPLING, SUBSAMPLING_OVERLAP
from transducer_gn.config.evaluation import DEFAULT_TOKENS_PER_FRAME
from transducer_gn.data.features import NUM_FEATURES
from transducer_gn.model.chunk import Chunk
from transducer_gn.model.encoder_stream import StreamingEncoder
from transducer_gn.recognition.audio import check_samples
from transducer_gn.recognition.filter_banks import OnlineFbank
from transducer_gn.recognition.transcript import Partial, Revisions, Transcript
from transducer_gn.search.beam import BeamSearch, advance_over


class RecognitionStream:
    """One utterance on its way; made by `StreamingRecogniser.open`.

    Attributes:
      error: the sentence that says why the stream failed; None while it has not.
    """

    def __init__(self, recogniser: "StreamingRecogniser") -> None:
        self.error: str | None = None
        self._recognizer = recogniser
        self._fbank = OnlineFbank()
        self._features = torch.zeros(0, NUM_FEATURES)
        self._encoder = recogniser.encoder.open()
        self._beam = recogniser.search.start(1)[0]
        self._transcript = Transcript(recogniser.tokenizer, FRAME_SHIFT)
        self._samples = 0
        self._ended = False

    @property
    def seconds(self) -> float:
        """Audio received."""
        return self._samples / self._fbank.sampling_rate

    @property
    def finished(self) -> bool:
        """Whether nothing more will change: the end was reached, or the stream has failed."""
        return self.error is not None or (self._ended and not self.is_ready)

    @property
    def revisions(self) -> Revisions:
        """How often and how far back the text was changed."""
        return self._transcript.revisions

    @property
    def is_ready(self) -> bool:
        """Whether there is a chunk to recognise."""
        return self.error is None and self._next_chunk() is not None

    def add(self, samples: Tensor | np.ndarray, sampling_rate: int = SAMPLING_RATE) -> None:
        """Take more samples [n], any number, without recognising yet; UserError if they are not what is needed."""
        self._check_open()
        samples = check_samples(samples, sampling_rate, self._fbank.sampling_rate)
        self._samples += len(samples)
        self._queue(self._fbank.accept(samples))

    def add_features(self, features: Tensor) -> None:
        """Take feature frames [n, 80] of 10 ms in place of samples, without recognising yet."""
        self._check_open()
        self._samples += len(features) * self._fbank.sampling_rate // 100
        self._queue(features)

    def end(self) -> None:
        """Say that the audio has ended, without recognising the rest yet."""
        self._check_open()
        if self._samples == 0:
            raise UserError("the stream has ended without any audio")
        self._queue(self._fbank.finish())
        self._ended = True

    def accept(self, samples: Tensor | np.ndarray, sampling_rate: int = SAMPLING_RATE) -> Partial:
        """Take more samples [n], recognise what is complete, and say what is known."""
        self.add(samples, sampling_rate)
        self._recognizer.advance([self])
        return self.partial()

    def finish(self) -> Partial:
        """Recognise the rest; gives the final text."""
        self.end()
        self._recognizer.advance([self])
        return self.partial()

    def partial(self) -> Partial:
        """What is known; UserError if the stream has failed."""
        if self.error is not None:
            raise UserError(self.error)
        partial = self._transcript.partial()
        # After the end nothing changes any more, whatever the other hypotheses of the beam say.
        return replace(partial, stable=partial.text) if self.finished else partial

    def _check_open(self) -> None:
        if self.error is not None:
            raise UserError(self.error)
        if self._ended:
            raise UserError("the stream has ended and takes no more audio")

    def _queue(self, features: Tensor) -> None:
        self._features = torch.cat([self._features, features])

    def _next_chunk(self) -> int | None:
        """How many of the queued features the encoder needs to give its next frames; None if more must come first."""
        chunk_features = SUBSAMPLING * self._recognizer.chunk.size + SUBSAMPLING_OVERLAP
        missing = max(0, chunk_features - len(self._encoder.features))
        if len(self._features) >= missing:
            return missing
        return len(self._features) if self._ended and not self._encoder.finished else None

    def _feed_encoder(self) -> None:
        """Hand the encoder the features of one chunk."""
        count = self._next_chunk()
        self._encoder.accept(self._features[:count])
        self._features = self._features[count:].clone()
        if self._ended and len(self._features) == 0 and not self._encoder.finished:
            self._encoder.finish()

    def _take_frames(self) -> None:
        """See what the beam makes of new frames."""
        if self._beam.faulty:
            self.error = "the model gives weights that are NaN or infinitely large for this audio"
            return
        self._transcript.update(*self._beam.settle(), self._beam.frames)


class StreamingRecogniser:
    """Recognises any number of streams with one model.

    Args:
      model: a Transducer in evaluation mode with a causal encoder; its parameters must not change any more.
      tokenizer: has `pieces` and `decode`.
      chunk: frames that are recognised together, and the history that they see.
      beam: hypotheses kept per stream.
      alpha: weight of local normalisation, from 0 to 1, as the model was trained.
      max_tokens_per_frame: most tokens between two blanks.

    A stream takes audio by `accept` and is recognised at once. To recognise many together, `add` audio to each of them
    and call `advance` with all.
    """

    def __init__(
        self,
        model,
        tokenizer,
        chunk: Chunk,
        beam: int = 4,
        alpha: float = 1.0,
        max_tokens_per_frame: int = DEFAULT_TOKENS_PER_FRAME,
    ) -> None:
        self.tokenizer = tokenizer
        self.chunk = chunk
        self.encoder = StreamingEncoder(model.encoder, chunk)
        self.search = BeamSearch(model, beam, alpha, max_tokens_per_frame)

    @torch.no_grad()
    def open(self) -> RecognitionStream:
        """A new stream."""
        return RecognitionStream(self)

    def advance(self, streams: Iterable[RecognitionStream]) -> None:
        """Recognise all chunks that are complete. A stream that fails says so in its `error`; the others go on."""
        streams = list(streams)
        while ready := [stream for stream in streams if stream.is_ready]:
            self.step(ready)

    @torch.no_grad()
    def step(self, ready: list[RecognitionStream]) -> None:
        """Recognise one chunk of each of the streams, all of which must be ready, in one batch."""
        for stream in ready:
            stream._feed_encoder()
        frames = self.encoder.advance([stream._encoder for stream in ready])
        # Only the last chunk of a stream can be empty.
        order = [row for row in range(len(ready)) if len(frames[row])]
        if not order:
            return
        padded = torch.nn.utils.rnn.pad_sequence([frames[row] for row in order], batch_first=True)
        advance_over(self.search, [ready[row]._beam for row in order], padded, [len(frames[row]) for row in order])
        for row in order:
            ready[row]._take_frames()
