"""How a sentence of the mini corpus becomes audio: words spoken one by one, some of them blends, joined, with noise.

Words are spoken alone and joined with short silences, so that no neighbour leaves a trace in an ambiguous word.
Levels are set word by word and the noise by a fixed level, so that nothing before the settling word depends on it.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import gcd

import numpy as np
from scipy.signal import firwin, resample, resample_poly

from transducer_gn.common.units import SAMPLING_RATE
from transducer_gn.synthetic.espeak import Espeak, Prosody
from transducer_gn.synthetic.sentences import Sentence
from transducer_gn.synthetic.speakers import Speaker

WORD_LEVEL = 0.06
LARGEST_PEAK = 0.5
SILENCE_BELOW_PEAK = 0.01
# How far from an even blend one of the two words may stand out; drawn without looking at the label.
LARGEST_TILT = 0.05


@dataclass(frozen=True)
class Spoken:
    """A sentence with its audio: int16 samples at 16 kHz, and start and end of each word in seconds."""

    sentence: Sentence
    samples: np.ndarray
    times: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Delivery:
    """What twins share besides their words: speed and pitch, blend, silences, loudness and noise."""

    prosody: Prosody
    tilt: float
    silences: tuple[float, ...]
    gain: float
    signal_to_noise: float
    noise_seed: int


def draw_delivery(speaker: Speaker, words: int, draw: random.Random) -> Delivery:
    """Draw how `speaker` says a sentence of so many words; silences are in seconds, the first before all words."""
    rate, pitch = speaker.rate + draw.randint(-12, 12), speaker.pitch + draw.randint(-6, 6)
    return Delivery(
        prosody=Prosody(rate, pitch, range=draw.randint(35, 65)),
        tilt=draw.uniform(-LARGEST_TILT, LARGEST_TILT),
        silences=(
            draw.uniform(0.05, 0.15),
            *(draw.uniform(0.01, 0.06) for _ in range(words - 1)),
            draw.uniform(0.1, 0.2),
        ),
        gain=10 ** (draw.uniform(-6, 0) / 20),
        signal_to_noise=draw.uniform(22, 35),
        noise_seed=draw.getrandbits(64),
    )


def level(samples: np.ndarray) -> np.ndarray:
    """Scale to the common level (root mean square), or to the largest peak allowed if that comes first."""
    scale = WORD_LEVEL / np.sqrt(np.mean(samples**2))
    return samples * min(scale, LARGEST_PEAK / np.abs(samples).max())


def trim(samples: np.ndarray) -> np.ndarray:
    """Cut the silence off both ends."""
    loud = np.flatnonzero(np.abs(samples) > SILENCE_BELOW_PEAK * np.abs(samples).max())
    return samples[loud[0] : loud[-1] + 1]


def blend(first: np.ndarray, second: np.ndarray, tilt: float) -> np.ndarray:
    """Mix two words, each levelled, over their mean length; at tilt 0 both count the same."""
    length = (len(first) + len(second)) // 2
    return level((0.5 + tilt) * resample(first, length) + (0.5 - tilt) * resample(second, length))


@cache
def low_pass(up: int, down: int) -> np.ndarray:
    """Return the filter that `resample_poly` would design anew for every sentence."""
    most = max(up, down)
    return firwin(20 * most + 1, 1 / most, window=("kaiser", 5.0)).astype(np.float32)


def to_16_khz(samples: np.ndarray, sampling_rate: int) -> np.ndarray:
    """Resample to 16 kHz; each sample depends on less than 1 ms of audio around it."""
    divisor = gcd(SAMPLING_RATE, sampling_rate)
    up, down = SAMPLING_RATE // divisor, sampling_rate // divisor
    return resample_poly(samples, up, down, window=low_pass(up, down))


def speak(group: Sequence[Sentence], speaker: Speaker, espeak: Espeak, draw: random.Random) -> list[Spoken]:
    """Speak a sentence, or both twins of a pair of sentences from the same pieces of audio."""
    delivery = draw_delivery(speaker, len(group[0].words), draw)
    pieces: dict[tuple[int, str], np.ndarray] = {}

    def say(word: str) -> np.ndarray:
        return level(trim(espeak.say(word.lower(), delivery.prosody)))

    def piece(sentence: Sentence, position: int) -> np.ndarray:
        word = sentence.words[position]
        pair = sentence.pair if position == sentence.blended else None
        key = (position, "/".join(pair.words) if pair is not None else word)
        if key not in pieces:
            said = [say(each) for each in (pair.words if pair is not None else (word,))]
            pieces[key] = blend(said[0], said[1], delivery.tilt) if pair is not None else said[0]
        return pieces[key]

    return [
        join(sentence, [piece(sentence, i) for i in range(len(sentence.words))], delivery, espeak.sampling_rate)
        for sentence in group
    ]


def join(sentence: Sentence, words: Sequence[np.ndarray], delivery: Delivery, sampling_rate: int) -> Spoken:
    """Join words with the delivery's silences, bring them to 16 kHz, add the noise."""
    silences = [np.zeros(round(seconds * sampling_rate), dtype=np.float32) for seconds in delivery.silences]
    times, parts, position = [], [silences[0]], len(silences[0])
    for word, silence in zip(words, silences[1:], strict=True):
        times.append((round(position / sampling_rate, 4), round((position + len(word)) / sampling_rate, 4)))
        parts += [word, silence]
        position += len(word) + len(silence)
    clean = to_16_khz(np.concatenate(parts) * delivery.gain, sampling_rate)
    # One stream of noise per delivery: the shorter twin hears the beginning of what the longer one hears.
    noise = np.random.default_rng(delivery.noise_seed).standard_normal(len(clean))
    noise *= WORD_LEVEL * delivery.gain * 10 ** (-delivery.signal_to_noise / 20)
    samples = np.clip(np.round((clean + noise) * 32767), -32768, 32767).astype(np.int16)
    return Spoken(sentence, samples, tuple(times))
