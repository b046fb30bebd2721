"""The runs of an experiment folder: what training, decoding and latency wrote about each, and what is wrong."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from transducer_gn.common.errors import UserError
from transducer_gn.common.json_files import parse_json, read_json
from transducer_gn.common.run_files import BEST, METRICS, BestEpoch
from transducer_gn.common.typed import typed
from transducer_gn.config import Config
from transducer_gn.evaluation.latency_results import Latency, find_latency, read_latency
from transducer_gn.evaluation.results import Results, find_results, read_results
from transducer_gn.recognition.checkpoint import Checkpoint, Progress, load_checkpoint
from transducer_gn.recognition.error_rates import Measure
from transducer_gn.reporting.extras import NO_EXTRAS, Extras

Found = TypeVar("Found")


@dataclass(frozen=True)
class Run:
    """One run. What could not be read is missing, and `problems` says why.

    Attributes:
        config: of its newest checkpoint that can be read; None if there is none
        branch_epoch: epochs that were done when it branched off; 0 if it began by itself
        step: updates at that checkpoint
        train: metrics of training in order of updates
        valid: metrics of validation in order of updates
        best: epoch and word error rate on the dev set (None if there is no such set); None before the end of the first
            epoch
        results: of decoding, by test set
        latencies: by test set
        problems: sentences about what is missing or cannot be read
        extras: what its corpus adds to a report
    """

    name: str
    folder: Path
    config: Config | None = None
    branch_epoch: int = 0
    step: int = 0
    train: list[dict[str, Any]] = field(default_factory=list)
    valid: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Any] | None = None
    results: dict[str, Results] = field(default_factory=dict)
    latencies: dict[str, Latency] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    extras: Extras = NO_EXTRAS

    def measures(self, part: str) -> dict[str, Measure]:
        """Error rates on a test set by name: all words, groups, and what the corpus adds."""
        results = self.results[part]
        return results.measures() | self.extras.measures(results.utterances)

    @property
    def alpha(self) -> float:
        """The interpolation weight that the run moves to."""
        return self.config.normalisation.alpha if self.config else math.nan

    @property
    def is_local(self) -> bool:
        """Whether it is, and stays, locally normalised."""
        return self.alpha == 1

    @property
    def is_lookahead(self) -> bool:
        """Whether it hears whole utterances."""
        return self.config is not None and not self.config.model.encoder.causal

    @property
    def is_finite_state(self) -> bool:
        """Whether its predictor sees a limited number of tokens."""
        return self.config is not None and self.config.model.predictor.kind == "finite-state"

    @property
    def is_plain(self) -> bool:
        """Whether it is a streaming system with unlimited memory: those that the paper compares by alpha."""
        return self.config is not None and not self.is_lookahead and not self.is_finite_state

    @property
    def is_mwer(self) -> bool:
        """Whether it is trained for minimum word error rate, alone or besides."""
        return self.config is not None and self.config.mwer.is_used

    @property
    def competitors(self) -> int | None:
        """N; None where there are none."""
        if self.config is None or self.config.normalisation.exact or (self.is_local and not self.is_mwer):
            return None
        return self.config.competitors.count

    @property
    def epochs(self) -> float:
        """Epochs done: by the newest metrics, or by the last whole epoch where nothing was logged at its end."""
        whole = float(self.best["last_epoch"]) if self.best is not None else 0.0
        return max(whole, *(row["epoch"] for row in self.train + self.valid), 0.0)

    @property
    def is_finished(self) -> bool:
        """Whether its last epoch is done."""
        return (
            self.config is not None and self.best is not None and self.best["last_epoch"] >= self.config.training.epochs
        )

    def seconds_per_epoch(self) -> float:
        """Time of updates per epoch, of a global run only since alpha has left 1; NaN before there is any."""
        seconds = epochs = 0.0
        before = float(self.branch_epoch)
        for row in self.train:
            if self.is_local or row.get("alpha", 1) < 1:
                seconds += sum(value for name, value in row.items() if name.startswith("seconds_"))
                epochs += row["epoch"] - before
            before = row["epoch"]
        return seconds / epochs if epochs > 0 else math.nan


def find_runs(root: Path, extras: Extras = NO_EXTRAS) -> list[Run]:
    """All runs below `root`, by name; UserError if there are none."""
    if not root.is_dir():
        raise UserError(f"there is no experiment folder {root}")
    folders = [path for path in sorted(root.iterdir()) if path.is_dir() and is_run(path)]
    if not folders:
        raise UserError(f"{root} holds no runs: no folder in it has metrics or checkpoints; train something first")
    return [read_run(folder, extras) for folder in folders]


def is_run(folder: Path) -> bool:
    """Whether train.py has written there."""
    return (folder / METRICS).is_file() or any(folder.glob("*.pt")) or (folder / "log-0.txt").is_file()


def read_run(folder: Path, extras: Extras = NO_EXTRAS) -> Run:
    """Read all there is of one run."""
    problems: list[str] = []
    newest = newest_settings(folder, problems)
    config = newest.config if newest else None
    progress = newest.progress if newest else Progress()
    rows = read_metrics(folder / METRICS, problems)
    run = Run(
        name=folder.name,
        folder=folder,
        config=config,
        branch_epoch=progress.branch_epoch,
        step=progress.step,
        train=[row for row in rows if row["kind"] == "train"],
        valid=[row for row in rows if row["kind"] == "valid"],
        best=read_best(folder / BEST, problems),
        results=attempt(lambda: {p: read_results(path) for p, path in find_results(folder).items()}, {}, problems),
        latencies=attempt(lambda: {p: read_latency(path) for p, path in find_latency(folder).items()}, {}, problems),
        problems=problems,
        extras=extras,
    )
    if config is not None and not run.is_finished:
        problems.append(f"still in progress, or stopped: at epoch {run.epochs:.2f} of {config.training.epochs}")
    if not run.results:
        problems.append("not decoded yet; run decode.py")
    return run


def attempt(read: Callable[[], Found], otherwise: Found, problems: list[str]) -> Found:
    """What `read` gives; if that fails, `otherwise`, and the reason is added to `problems`."""
    try:
        return read()
    except UserError as error:
        problems.append(str(error))
        return otherwise


def newest_settings(folder: Path, problems: list[str]) -> Checkpoint | None:
    """The newest checkpoint that can be read, its parameters left on disk."""
    paths = sorted(folder.glob("epoch-*.pt")) + sorted(folder.glob("checkpoint-*.pt"))
    if not paths:
        problems.append("no checkpoint yet")
    read = [attempt(partial(load_checkpoint, path, mmap=True), None, problems) for path in paths]
    return max((found for found in read if found), key=lambda found: found.progress.step, default=None)


def read_metrics(path: Path, problems: list[str]) -> list[dict[str, Any]]:
    """The lines of a metrics file that can be read, in order of updates; problems name the others."""
    if not path.is_file():
        problems.append(f"no {path.name}")
        return []
    rows, bad = [], []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        try:
            row = parse_json(line, dict[str, Any])
            typed(str, row["kind"])
            numbers = {name: typed(float, value) for name, value in row.items() if name not in ("kind", "step")}
            if not (row["step"] >= 0 and numbers["epoch"] >= 0):
                raise ValueError("no moment of training")
            rows.append(numbers | {"kind": row["kind"], "step": typed(int, row["step"])})
        except (ValueError, KeyError, TypeError):
            bad.append(str(number))
    if bad:
        problems.append(f"{path.name}: cannot read line {', '.join(bad)}; the rest is shown")
    return sorted(rows, key=lambda row: row["step"])


def read_best(path: Path, problems: list[str]) -> dict[str, Any] | None:
    """Content of best.json; None if it is not there or cannot be read."""
    if not path.is_file():
        return None
    try:
        return asdict(read_json(path, BestEpoch))
    except ValueError:
        problems.append("best.json cannot be read")
        return None


def choose_baseline(runs: Sequence[Run], name: str | None = None, known: Sequence[str] = ()) -> Run | None:
    """The local run to compare with: the one named, or else the last trained one of the `known` baselines.

    Where there is none of these, the plain local one with the most updates.
    """
    if name is not None:
        return named(runs, name, "--baseline")
    if (found := last_of([run for run in runs if run.best], known)) is not None:
        return found
    candidates = [run for run in runs if run.is_local and run.is_plain and not run.is_mwer]
    return max(candidates, key=lambda run: run.step, default=None)


def choose_challenger(runs: Sequence[Run], name: str | None = None, known: Sequence[str] = ()) -> Run | None:
    """The global run to compare: the one named, or else that with the lowest error rate on the dev set.

    It is one of the `known` challengers or, where there is none of these, any plain global one.
    """
    if name is not None:
        return named(runs, name, "--challenger")
    candidates = [run for run in runs if run.name in known and run.best]
    candidates = candidates or [run for run in runs if run.is_plain and not run.is_local and run.best]
    return min(candidates, key=dev_error_rate, default=None)


def dev_error_rate(run: Run) -> float:
    """Word error rate on the dev set at the best epoch; infinite where it is not known."""
    return math.inf if run.best is None or run.best["wer"] is None else run.best["wer"]


def choose_lookahead(runs: Sequence[Run], part: str | None, known: Sequence[str] = ()) -> Run | None:
    """The local run that hears whole utterances, decoded on `part`: the last `known` one, or that of most updates."""
    decoded = [run for run in runs if part in run.results]
    if (found := last_of(decoded, known)) is not None:
        return found
    return max((run for run in decoded if run.is_lookahead and run.is_local), key=lambda run: run.step, default=None)


def last_of(runs: Sequence[Run], names: Sequence[str]) -> Run | None:
    """The run whose name comes last among `names`; None if there is none of them."""
    by_name = {run.name: run for run in runs}
    return next((by_name[name] for name in reversed(names) if name in by_name), None)


def named(runs: Sequence[Run], name: str, flag: str) -> Run:
    """The run of a name; UserError naming the flag."""
    for run in runs:
        if run.name == name:
            return run
    raise UserError(f"{flag}: there is no run {name!r}, only {', '.join(run.name for run in runs)}")


def decoded_sets(runs: Sequence[Run]) -> list[str]:
    """Names of the sets that any run was decoded on: dev sets first, clean ones before others."""
    return sorted({part for run in runs for part in run.results}, key=lambda part: (not part.startswith("dev"), part))


def headline_set(runs: Sequence[Run]) -> str | None:
    """The set that comparisons are made on: test-clean, as in the paper, or else the first test set."""
    sets = decoded_sets(runs)
    tests = [part for part in sets if part.startswith("test")] or sets
    return "test-clean" if "test-clean" in tests else next(iter(tests), None)


def normalisation_text(run: Run) -> str:
    """The normalisation as a table names it."""
    if run.config is None:
        return "unknown"
    extras = []
    if run.is_local:
        text = "local, alpha 1"
    else:
        text = f"global, alpha {run.alpha:g}"
        extras += ["exact Z"] if run.config.normalisation.exact else [f"N {run.competitors}"]
    if run.is_mwer:
        mwer = run.config.mwer
        extras += [f"N {run.competitors}"] if run.is_local else []
        extras.append(f"MWER {mwer.weight:g}, {mwer.scores} scores")
    if run.is_finite_state:
        extras.append(f"finite-state, vocabulary {run.config.model.vocab_size}")
    if run.is_lookahead:
        extras.append("lookahead")
    if not run.is_local and run.config.normalisation.regulariser == 0:
        extras.append("no regulariser")
    return ", ".join([text, *extras])
