"""Streaming Transducers trained without label bias: global normalisation for speech recognition.

The front door is `load`; `docs/recognition.md` shows what a loaded system can do.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from transducer_gn.config import SystemConfig
    from transducer_gn.recognition.system import System


def load(path: "str | Path", device: str = "cpu", choice: "SystemConfig | None" = None) -> "System":
    """Load a trained system, ready to recognise.

    Args:
        path: a checkpoint that training wrote, or an experiment folder, of which the best epoch is taken
        device: where to compute, such as "cpu" or "cuda"
        choice: another epoch of the folder, an average over epochs, or another alpha

    Returns:
        a system with `transcribe` for recordings and `stream` for live audio
    """
    # Imported here, so that importing the package stays cheap.
    from transducer_gn.config import SystemConfig
    from transducer_gn.recognition import system

    return system.load(path, device, choice or SystemConfig())
