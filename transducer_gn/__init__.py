"""Streaming Transducers trained without label bias: global normalisation for speech recognition.

The front door is `load`; `docs/recognition.md` shows what a loaded system can do. `load_exported` does the same with
the files that export.py writes, without torch (`docs/export.md`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from transducer_gn.config import SystemConfig
    from transducer_gn.recognition.system import System
    from transducer_gn.runtime.system import ExportedSystem


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


def load_exported(folder: "str | Path", precision: str = "float32", threads: int = 1) -> "ExportedSystem":
    """Load an exported system, ready to recognise with onnxruntime; torch is not imported.

    Args:
        folder: what export.py wrote
        precision: of the weights, "float32" or, if it was exported with --int8, "int8"
        threads: of the processor that one step may use

    Returns:
        a system with `transcribe` for recordings and `stream` for live audio
    """
    from transducer_gn.runtime import system

    return system.load(folder, precision, threads)
