"""What training writes for people: a readable log, metrics as JSON lines and for tensorboard, a line of progress."""

import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import yaml
from torch import Tensor

from transducer_gn.common.durations import duration
from transducer_gn.common.files import write_text
from transducer_gn.common.json_files import parse_json
from transducer_gn.common.run_files import METRICS
from transducer_gn.common.typed import typed
from transducer_gn.config import Config

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

PACKAGES = ("torch", "lhotse", "sentencepiece", "numpy", "k2", "fast_rnnt")


class Logbook:
    """Writes what happens in a run; on ranks other than the first it does nothing.

    Args:
        folder: of the experiment
        step: updates done when the run starts or resumes. Metrics of later ones were written after the last checkpoint
            of a run that was then killed; they are dropped, since these updates are made again
        active: whether to write at all
    """

    def __init__(self, folder: Path, step: int, active: bool) -> None:
        self._active = active
        self._curves: SummaryWriter | None = None
        self._folder = folder
        self._started = time.monotonic()
        # Kinds and updates of lines that are there: a run killed after an epoch's validation makes that one again.
        self._noted: set[tuple[str, int]] = set()
        if active:
            self._noted = drop_later_metrics(folder / METRICS, step)
            self._curves = open_curves(folder / "tensorboard", step)

    def metrics(self, kind: str, step: int, epoch: float, values: Mapping[str, float]) -> None:
        """Numbers of one moment: `kind` is "train" or "valid"."""
        if not self._active or (kind, step) in self._noted:
            return
        self._noted.add((kind, step))
        line = json.dumps({"kind": kind, "step": step, "epoch": round(epoch, 6), **values})
        with (self._folder / METRICS).open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        if self._curves is not None:
            for name, value in values.items():
                self._curves.add_scalar(f"{kind}/{name}", value, step)

    def histogram(self, name: str, step: int, values: Tensor) -> None:
        """A distribution, for tensorboard."""
        if self._curves is not None and values.numel():
            self._curves.add_histogram(name, values.float().cpu(), step)

    def sentences(self, step: int, pairs: list[tuple[str, str]]) -> None:
        """A few references with what was recognised, for the log and for tensorboard."""
        if not self._active:
            return
        for reference, hypothesis in pairs:
            logging.info("reference  %s", reference)
            logging.info("recognised %s", hypothesis)
        text = "\n\n".join(f"reference: {reference}  \nrecognised: {hypothesis}" for reference, hypothesis in pairs)
        if self._curves is not None:
            self._curves.add_text("valid/sentences", text, step)

    def progress(self, text: str, done: float) -> None:
        """A line with the time left, given the share of this run that is done; in place on a terminal."""
        if not self._active:
            return
        passed = time.monotonic() - self._started
        left = f"{duration(passed * (1 - done) / done)} left" if done > 0 else "time left unknown"
        line = f"{100 * done:5.1f} %  {text}  {left}"
        if sys.stderr.isatty():
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        logging.getLogger("transducer_gn.progress").info(line)

    def close(self) -> None:
        """End what tensorboard writes in the background."""
        if self._curves is not None:
            self._curves.close()


def open_curves(folder: Path, step: int) -> "SummaryWriter | None":
    """What writes curves for tensorboard, after `step` updates; None, and a warning, where it is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        logging.warning("no curves are written: tensorboard is not installed (pip install 'transducer_gn[train]')")
        return None
    return SummaryWriter(folder, purge_step=step + 1)


def in_a_sentence(
    otherwise: Callable[[threading.ExceptHookArgs], object],
) -> Callable[[threading.ExceptHookArgs], None]:
    """Says what goes wrong with the files of curves without a traceback; whoever writes to them next gets the error.

    Args:
        otherwise: what is done about everything else that threads end with
    """

    def say(arguments: threading.ExceptHookArgs) -> None:
        writes_curves = type(arguments.thread).__module__.startswith("tensorboard.")
        if writes_curves and isinstance(arguments.exc_value, OSError):
            logging.warning("curves for tensorboard cannot be written: %s", arguments.exc_value)
        else:
            otherwise(arguments)

    return say


def drop_later_metrics(path: Path, step: int) -> set[tuple[str, int]]:
    """Remove lines of updates after `step`, and lines that were cut off; gives kinds and updates of those that stay."""
    kept: list[str] = []
    if not path.exists():
        return set()
    for line in path.read_bytes().split(b"\n"):
        # What is no line of metrics was cut off, or is not of this program.
        with suppress(ValueError, KeyError):
            if typed(float, parse_json(line, dict[str, Any])["step"]) <= step:
                kept.append(line.decode())
    write_text(path, "".join(line + "\n" for line in kept))
    stay = [json.loads(line) for line in kept]
    return {(str(line.get("kind")), line["step"]) for line in stay}


def start_log(folder: Path, rank: int) -> None:
    """Send log messages to a file of this rank, and from the first rank to standard error.

    Where they cannot be written, since the disk is full or forbids it, nobody is told by a traceback: what must be
    written cannot be, either, and that ends in a sentence.
    """
    logging.raiseExceptions = False
    threading.excepthook = in_a_sentence(threading.excepthook)
    handlers: list[logging.Handler] = [logging.FileHandler(folder / f"log-{rank}.txt", encoding="utf-8")]
    if rank == 0:
        console = logging.StreamHandler()
        # On a terminal the line of progress is rewritten in place instead.
        console.addFilter(lambda record: not (record.name.endswith("progress") and sys.stderr.isatty()))
        handlers.append(console)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", handlers=handlers, force=True
    )


def describe_run(config: Config, backend: str, world_size: int, device: torch.device, parameters: int) -> None:
    """Write to the log what a reader needs to repeat the run."""
    versions = ", ".join(f"{name} {version}" for name, version in installed_versions().items())
    logging.info("%s; git %s; recursion backend %s", versions, git_commit(), backend)
    logging.info("%d processes on %s; %.2f million parameters", world_size, device, parameters / 1e6)
    epochs, cooldown = config.training.epochs, config.optimiser.cooldown_epochs
    if cooldown > 0:
        logging.info("the learning rate falls to 0 from %g epochs on until all %d are done", epochs - cooldown, epochs)
    logging.info("configuration:\n%s", yaml.safe_dump(asdict(config), sort_keys=False))


def installed_versions() -> dict[str, str]:
    """Of Python and of the packages that results may depend on, as far as they are there."""
    versions = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def git_commit() -> str:
    """The commit of this code, with a mark if files were changed since; "unknown" outside a repository."""
    here = Path(__file__).parent
    try:
        result = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=here, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return result.stdout.strip()
