"""Filter banks of audio that arrives in pieces, equal to those that training computes from whole recordings.

Windows are centred: frame i covers samples 160 i - 120 to 160 i + 280, and the signal is mirrored at both ends. So the
mirrored beginning is put in front of a stream, windows that are complete are computed by the very extractor of
training, and at the end the mirrored end is appended.
"""

import warnings
from dataclasses import replace
from functools import cache

import torch
from lhotse import Fbank
from torch import Tensor

from transducer_gn.common.framing import FILTER_BANKS
from transducer_gn.data.features import fbank


class OnlineFbank:
    """The features of one stream."""

    def __init__(self) -> None:
        self._extractor = _unmirrored_extractor()
        config = self._extractor.config
        self.sampling_rate = config.sampling_rate
        self._shift = round(config.frame_shift * config.sampling_rate)
        self._window = round(config.frame_length * config.sampling_rate)
        # How many samples of the first window lie before the beginning.
        self._lead = (self._window - self._shift) // 2
        self._samples = torch.zeros(0)
        self._started = False
        self._received = 0
        self._features: list[Tensor] = []

    @property
    def is_ready(self) -> bool:
        """Whether there are features to take."""
        return bool(self._features)

    def accept(self, samples: Tensor) -> None:
        """Compute the features of windows that are now complete, after more `samples` [m] between -1 and 1."""
        self._samples = torch.cat([self._samples, samples])
        self._received += len(samples)
        if not self._started:
            if len(self._samples) < self._lead:
                return
            self._samples = torch.cat([self._samples[: self._lead].flip(0), self._samples])
            self._started = True
        self._complete_windows()

    def finish(self) -> None:
        """Compute the remaining features. A stream shorter than half a window has none."""
        if self._received < self._window // 2:
            return  # too short to be mirrored
        wanted = (self._received + self._shift // 2) // self._shift
        end = (wanted - 1) * self._shift + self._window - self._lead
        mirrored = self._samples[len(self._samples) - (end - self._received) :].flip(0)
        self._samples = torch.cat([self._samples, mirrored])
        self._complete_windows()

    def take(self) -> Tensor:
        """The features [n, 80] since the last call."""
        features, self._features = self._features, []
        return torch.cat([torch.zeros(0, FILTER_BANKS.feature_dim), *features])

    def _complete_windows(self) -> None:
        """Compute all windows that the samples at hand fill; forgets samples that no later window needs."""
        count = max(0, (len(self._samples) - self._window) // self._shift + 1)
        if count == 0:
            return
        used = self._samples[: (count - 1) * self._shift + self._window]
        features = self._extractor.extract(used[None], self.sampling_rate)
        # A copy, since a slice would keep alive all samples that it was cut from.
        self._samples = self._samples[count * self._shift :].clone()
        self._features.append(torch.as_tensor(features))


@cache
def _unmirrored_extractor() -> Fbank:
    """The extractor of training, except that it computes only windows that lie wholly within what it is given."""
    with warnings.catch_warnings():
        # lhotse warns that the number of frames will not fit the duration, which it need not here.
        warnings.filterwarnings("ignore", message=".*snip_edges.*")
        return Fbank(replace(fbank().config, snip_edges=True))
