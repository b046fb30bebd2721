"""Live recognition with an exported system: audio in pieces of any size, text as it becomes known."""

import numpy as np

from transducer_gn.common.errors import UserError
from transducer_gn.common.framing import SILENCE
from transducer_gn.common.units import SAMPLING_RATE
from transducer_gn.config.evaluation import SHOW_ALL, DisplayConfig
from transducer_gn.recognition.beam_text import BeamText
from transducer_gn.recognition.samples import checked_samples
from transducer_gn.recognition.transcript import Revisions, Spelling, Transcript
from transducer_gn.runtime.filter_banks import OnlineFilterBanks
from transducer_gn.runtime.moonshine import OnlineMoonshine
from transducer_gn.runtime.networks import Networks
from transducer_gn.runtime.search import Search


class ExportedStream:
    """One stream that is recognised as its audio comes; the text is that of `System.stream` with the same settings.

    Args:
        networks: the system's graphs
        search: over the same graphs, and of this stream alone
        tokenizer: spells tokens
        tail: feature vectors of silence that follow the utterance
        display: what to show of the text
    """

    def __init__(
        self,
        networks: Networks,
        search: Search,
        tokenizer: Spelling,
        tail: int = 0,
        display: DisplayConfig = SHOW_ALL,
    ) -> None:
        self._networks = networks
        self._search = search
        self._layout = networks.layout
        self._framing = networks.layout.framing
        self._online = online_features(networks)
        self._tail = tail
        self._state = networks.initial_encoder_state()
        # Feature vectors that no chunk has used up yet; they begin with the zeros before the first.
        self._features = self._margin()
        self._text = BeamText(search.start(), tokenizer, self._framing, display)
        self._samples = 0
        self._ended = False

    @property
    def seconds(self) -> float:
        """Audio received."""
        return self._samples / SAMPLING_RATE

    @property
    def revisions(self) -> Revisions:
        """How often and how far back the text was changed."""
        return self._text.revisions

    def accept(self, samples: np.ndarray, sampling_rate: int = SAMPLING_RATE) -> Transcript:
        """Take more samples, recognise what is complete, and say what is known.

        Args:
            samples: [n] mono, any number; floats between -1 and 1, or 16-bit integers
            sampling_rate: of these samples; any but the system's is refused
        """
        self._check_open()
        samples = checked_samples(np.asarray(samples), sampling_rate, SAMPLING_RATE)
        self._samples += len(samples)
        self._take(self._online.accept(samples))
        return self.partial()

    def finish(self) -> Transcript:
        """Recognise the rest; gives the final text."""
        self._check_open()
        if self._samples == 0:
            raise UserError("the stream has ended without any audio")
        self._ended = True
        silence = np.full((self._tail, self._framing.feature_dim), SILENCE, dtype=np.float32)
        self._take(np.concatenate([self._online.finish(), silence, self._margin()]))
        while (frames := self._framing.frames_within(len(self._features))) > 0 and self._text.error is None:
            self._step(frames)
        return self.partial()

    def partial(self) -> Transcript:
        """What is known; UserError if the stream has failed."""
        return self._text.transcript(final=self._ended)

    def _take(self, features: np.ndarray) -> None:
        """Take feature vectors [n, F] and recognise all chunks that are complete."""
        self._features = np.concatenate([self._features, features])
        while len(self._features) >= self._framing.features_seen(self._layout.chunk) and self._text.error is None:
            self._step(self._layout.chunk)

    def _step(self, frames: int) -> None:
        """Recognise one chunk, of which so many frames are real."""
        seen = self._framing.features_seen(self._layout.chunk)
        window = self._features[:seen]
        self._features = self._features[self._framing.features_used(self._layout.chunk) :]
        window = np.pad(window, ((0, seen - len(window)), (0, 0)))
        projected, self._state = self._networks.encode(window[None], np.array([frames]), self._state)
        for frame in projected[0, :frames]:
            self._search.advance(self._text.beam, frame)
        self._text.update()

    def _margin(self) -> np.ndarray:
        """The zeros before the first feature vector and after the last."""
        return np.zeros((self._framing.margin, self._framing.feature_dim), dtype=np.float32)

    def _check_open(self) -> None:
        if self._text.error is not None:
            raise UserError(self._text.error)
        if self._ended:
            raise UserError("the stream has ended and takes no more audio")


def online_features(networks: Networks) -> OnlineFilterBanks | OnlineMoonshine:
    """What makes the feature vectors of a stream."""
    if networks.front_end is None or networks.layout.front_end is None:
        return OnlineFilterBanks()
    return OnlineMoonshine(networks.front_end, networks.layout.front_end)
