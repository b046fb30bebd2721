"""Invariant: an exported system is loaded and recognises in a process that has neither torch nor what needs it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from house import REPOSITORY
from small_exports import exported, moonshine_system, small_system, tones

from transducer_gn.recognition.system import System

PROGRAM = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "torchaudio", "lhotse", "onnx", "kaldialign", "scipy"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocked())
import numpy as np
import transducer_gn

system = transducer_gn.load_exported(sys.argv[1])
print(system.transcribe(np.load(sys.argv[2])).text)
"""


@pytest.mark.parametrize("made", [small_system, moonshine_system], ids=["filter banks", "pretrained front end"])
def test_texts_come_out_where_torch_cannot_be_imported(tmp_path: Path, made: Callable[[Path], System]) -> None:
    system = made(tmp_path)
    audio = tones(2, 60000)
    np.save(tmp_path / "audio.npy", audio)
    arguments = [sys.executable, "-c", PROGRAM, exported(system, tmp_path / "out"), tmp_path / "audio.npy"]
    result = subprocess.run(arguments, capture_output=True, text=True, cwd=REPOSITORY)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == system.transcribe(audio).text != ""
