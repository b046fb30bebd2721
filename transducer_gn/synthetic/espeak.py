"""espeak-ng by ctypes: text and a voice in, samples out."""

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from transducer_gn.common.errors import UserError

# Constants of espeak-ng's speak_lib.h.
OUTPUT_SYNCHRONOUS = 2
POSITION_CHARACTER = 1
CHARACTERS_UTF8 = 1
PARAMETER_RATE = 1
PARAMETER_PITCH = 3
PARAMETER_RANGE = 4

SynthesisCallback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


@dataclass(frozen=True)
class Prosody:
    """How fast (words per minute) and how high and lively (0 to 100, 50 is the voice's own) to speak."""

    rate: int = 175
    pitch: int = 50
    range: int = 50


class Espeak:
    """One voice of espeak-ng.

    The engine keeps state between calls: the same word twice gives slightly different samples. A fresh process
    that repeats the same calls gives the same samples, so work that must be repeatable starts in its own process.
    """

    def __init__(self, voice: str, language: str = "en-us") -> None:
        import espeakng_loader

        data = Path(espeakng_loader.get_data_path())
        # espeak-ng takes an unknown variant without a word and speaks with the plain voice.
        if not (data / "voices" / "!v" / voice).is_file():
            raise UserError(f"espeak-ng has no voice variant {voice!r}; it has the files in {data}/voices/!v")
        self._library = ctypes.CDLL(espeakng_loader.get_library_path())
        self.sampling_rate = self._library.espeak_Initialize(OUTPUT_SYNCHRONOUS, 0, str(data).encode(), 0)
        if self.sampling_rate <= 0:
            raise UserError(f"espeak-ng could not start with its data in {data}; reinstall espeakng-loader")
        self._chunks: list[np.ndarray] = []
        # ctypes does not keep the callback alive; this attribute does.
        self._callback = SynthesisCallback(self._collect)
        self._library.espeak_SetSynthCallback(self._callback)
        if self._library.espeak_SetVoiceByName(f"{language}+{voice}".encode()) != 0:
            raise UserError(f"espeak-ng has no language {language!r}")
        # Breathy voices draw noise, from the time of day unless told otherwise.
        self._library.espeak_ng_SetRandSeed(ctypes.c_long(1))

    def _collect(self, samples: Any, count: int, _events: Any) -> int:
        """Keep what espeak-ng hands over: a pointer to `count` samples of 16 bits; 0 asks for more."""
        if samples and count > 0:
            self._chunks.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0

    def say(self, text: str, prosody: Prosody = Prosody()) -> np.ndarray:
        """Return `text` spoken with `prosody`: float32 samples in [-1, 1] at `sampling_rate`."""
        self._library.espeak_SetParameter(PARAMETER_RATE, prosody.rate, 0)
        self._library.espeak_SetParameter(PARAMETER_PITCH, prosody.pitch, 0)
        self._library.espeak_SetParameter(PARAMETER_RANGE, prosody.range, 0)
        self._chunks.clear()
        encoded = text.encode() + b"\0"
        self._library.espeak_Synth(
            encoded, ctypes.c_size_t(len(encoded)), 0, POSITION_CHARACTER, 0, CHARACTERS_UTF8, None, None
        )
        if not self._chunks:
            raise RuntimeError(f"espeak-ng gave no audio for {text!r}")
        return np.concatenate(self._chunks).astype(np.float32) / 32768


def voice_gender(voice: str) -> str:
    """Return "F" if espeak-ng's file for `voice` says female, else "M" (its plain voice is a man's)."""
    import espeakng_loader

    lines = (Path(espeakng_loader.get_data_path()) / "voices" / "!v" / voice).read_text(errors="replace").splitlines()
    return "F" if any(line.split()[:2] == ["gender", "female"] for line in lines) else "M"
