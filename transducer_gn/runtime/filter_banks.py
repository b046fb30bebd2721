"""Filter banks of audio that arrives in pieces, in numpy: those of training to the precision of floats.

Kaldi's recipe: windows of 25 ms every 10 ms, centred, the signal mirrored at both ends; the mean taken out of each
window, a first difference, a window function, the power spectrum, triangles on the mel scale, logarithms.
"""

from functools import cache

import numpy as np

from transducer_gn.common.framing import FILTER_BANKS
from transducer_gn.common.units import SAMPLING_RATE

SHIFT = FILTER_BANKS.feature_step
WINDOW = round(0.025 * SAMPLING_RATE)
TRANSFORM = 512
BANDS = FILTER_BANKS.feature_dim
LOWEST_HZ, HIGHEST_HZ = 20.0, SAMPLING_RATE / 2 - 400.0
PREEMPHASIS = 0.97
# The exponent of Kaldi's window function, which is a Hann window to this power.
WINDOW_POWER = 0.85
FLOOR = np.finfo(np.float32).eps
# How many samples of the first window lie before the beginning.
LEAD = (WINDOW - SHIFT) // 2

RECIPE = {
    "kind": "log mel filter banks, as Kaldi computes them",
    "window_samples": WINDOW,
    "shift_samples": SHIFT,
    "snip_edges": False,
    "dither": 0.0,
    "remove_dc_offset": True,
    "preemphasis": PREEMPHASIS,
    "window": "povey",
    "transform_samples": TRANSFORM,
    "power_spectrum": True,
    "bands": BANDS,
    "lowest_hz": LOWEST_HZ,
    "highest_hz": HIGHEST_HZ,
    "floor": float(FLOOR),
    "samples": "floats between -1 and 1",
}


class OnlineFilterBanks:
    """The features of one stream."""

    def __init__(self) -> None:
        self._samples = np.zeros(0, dtype=np.float32)
        self._started = False
        self._received = 0

    def accept(self, samples: np.ndarray) -> np.ndarray:
        """Features [n, 80] of windows that are now complete, after more `samples` [m] between -1 and 1."""
        self._samples = np.concatenate([self._samples, samples.astype(np.float32)])
        self._received += len(samples)
        if not self._started:
            if len(self._samples) < LEAD:
                return nothing()
            self._samples = np.concatenate([self._samples[:LEAD][::-1], self._samples])
            self._started = True
        return self._complete_windows()

    def finish(self) -> np.ndarray:
        """The remaining features [n, 80]. A stream shorter than half a window has none."""
        if self._received < WINDOW // 2:
            return nothing()  # too short to be mirrored
        wanted = (self._received + SHIFT // 2) // SHIFT
        end = (wanted - 1) * SHIFT + WINDOW - LEAD
        mirrored = self._samples[len(self._samples) - (end - self._received) :][::-1]
        self._samples = np.concatenate([self._samples, mirrored])
        return self._complete_windows()

    def _complete_windows(self) -> np.ndarray:
        """Features of all windows that the samples at hand fill; forgets samples that no later window needs."""
        count = max(0, (len(self._samples) - WINDOW) // SHIFT + 1)
        if count == 0:
            return nothing()
        windows = np.lib.stride_tricks.sliding_window_view(self._samples, WINDOW)[: (count - 1) * SHIFT + 1 : SHIFT]
        features = filter_banks(windows)
        self._samples = self._samples[count * SHIFT :].copy()
        return features


def nothing() -> np.ndarray:
    """No features [0, 80]."""
    return np.zeros((0, BANDS), dtype=np.float32)


def filter_banks(windows: np.ndarray) -> np.ndarray:
    """Features [n, 80] of windows [n, 400] of samples."""
    windows = windows - windows.mean(axis=1, keepdims=True)
    before = np.concatenate([windows[:, :1], windows[:, :-1]], axis=1)
    windows = (windows - np.float32(PREEMPHASIS) * before) * window_function()
    power = np.abs(np.fft.rfft(windows, TRANSFORM)) ** 2
    return np.log(np.maximum(power @ mel_triangles(), FLOOR)).astype(np.float32)


@cache
def window_function() -> np.ndarray:
    """Kaldi's window [400]."""
    return (np.hanning(WINDOW) ** WINDOW_POWER).astype(np.float32)


@cache
def mel_triangles() -> np.ndarray:
    """How much of each frequency [257, 80] belongs to each band; the highest frequency belongs to none."""
    edges = np.linspace(_mel(LOWEST_HZ), _mel(HIGHEST_HZ), BANDS + 2)
    frequencies = _mel(np.arange(TRANSFORM // 2) * SAMPLING_RATE / TRANSFORM)[:, None]
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    rising, falling = (frequencies - left) / (centre - left), (right - frequencies) / (right - centre)
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    return np.concatenate([triangles, np.zeros((1, BANDS))]).astype(np.float32)


def _mel(hertz: np.ndarray | float) -> np.ndarray:
    return 1127.0 * np.log(1.0 + np.asarray(hertz) / 700.0)
