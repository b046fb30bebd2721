#!/usr/bin/env python3
"""How many small faults in the program do the tests find? A tool to be run by hand, beside the tests it measures.

  python tests/mutations.py --out mutations.jsonl                    # 200 mutants, two at a time
  python tests/mutations.py --out mutations.jsonl --again            # those that survived once more, after new tests
  python tests/mutations.py --out mutations.jsonl --mutants 0        # only the table of what is there

First every test file is run once without a mutant, to see which tests execute which lines (tests/executed.py); what is
seen is kept beside the results, and only files that have changed are run again. Then each mutant is written into a copy
of the tree, and the tests that execute its line are run there, the quickest first, until one fails; then the test files
nearest to its module, whole. A mutant is killed if a test fails that passes without it, and timed out if tests take
several times as long as without it; both count as found. Results are JSON lines; a call that was stopped goes on from
there.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from executed import Executed, Recorder, executing_tests, read_executed, write_executed
from mutants import Mutant, mutants_of, sample
from reach import nearest_tests

REPOSITORY = Path(__file__).resolve().parents[1]
LEFT_OUT = (".git", ".venv", "data", "download", "exp", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache")
OWN_MODULES = ("executed", "mutants", "reach", "import_graph")
# Tests with a mutant may take so many times their usual time and so many seconds more.
PATIENCE = 4
SECONDS_MORE = 30
# New processes come from one that has read the large packages already, with one thread each.
os.environ.setdefault("OMP_NUM_THREADS", "1")
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["torch", "lhotse", "pytest", "hypothesis", "sentencepiece", "jsonargparse", "coverage"]
)


@dataclass
class Bench:
    """Copies of the tree in which mutants are tried, and what each test does without one.

    Attributes:
        root: the tree
        copies: those not in use
        executed: what each test did on the unchanged tree
        sound: tests that were seen to pass alone, too, on the unchanged tree
    """

    root: Path
    copies: Queue[Path] = field(default_factory=Queue)
    executed: dict[str, Executed] = field(default_factory=dict)
    sound: set[str] = field(default_factory=set)

    def add_copy(self, folder: Path) -> None:
        """Make one more copy, for one more mutant at a time."""
        # The folders left out lie at the top: tests/data and transducer_gn/data belong to the program.
        folder.mkdir(parents=True)
        for entry in self.root.iterdir():
            if entry.name in LEFT_OUT:
                continue
            if entry.is_dir():
                shutil.copytree(entry, folder / entry.name, ignore=shutil.ignore_patterns("__pycache__", "exp"))
            else:
                shutil.copy2(entry, folder / entry.name)
        self.copies.put(folder)

    def watch(self, file: str, packages: list[str], folder: Path) -> None:
        """Run a test file without a mutant to see what its tests execute, unless that is in `folder` already."""
        paths = [self.root / file, *(path for each in packages for path in sorted((self.root / each).rglob("*.py")))]
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]
        kept = folder / f"{file.replace('/', '+')}-{digest}.json"
        if not kept.is_file():
            copy = self.copies.get()
            run_tests(copy, [file], 1800, (packages, kept))
            self.copies.put(copy)
            if not kept.is_file():
                sys.exit(f"{file} does not come to its end without any mutant; mend it first")
        self.executed |= read_executed(kept)

    def batches(self, mutant: Mutant, seconds: float, files: int) -> Iterator[list[str]]:
        """Tests for a mutant: a few quick ones, more, all within `seconds`; then what is left in the nearest files."""
        text = (self.root / mutant.path).read_text()
        batch: list[str] = []
        run, spent, bounds = set(), 0.0, [seconds / 25, seconds / 5, seconds]
        for test in executing_tests(self.executed, text, mutant.path, mutant.line):
            spent += self.executed[test].seconds
            if batch and spent > bounds[0]:
                yield batch
                batch = []
                bounds = [bound for bound in bounds if spent <= bound]
            if not bounds:
                break
            batch.append(test)
            run.add(test)
        # A test may have used what another one had made, without executing the line itself.
        near = [self._passing(file) for file in nearest_tests(self.root, mutant.path)]
        rest = [[test for test in tests if test not in run] for tests in [tests for tests in near if tests][:files]]
        yield from (tests for tests in [batch, *rest] if tests)

    def _passing(self, file: str) -> list[str]:
        """Tests of a file that pass without a mutant."""
        return [name for name, each in self.executed.items() if each.passed and name.startswith(f"{file}::")]

    def try_mutant(self, mutant: Mutant, batches: Iterable[list[str]]) -> dict[str, Any]:
        """What became of a mutant: killed, timed out (by which test), or survived."""
        copy, begin = self.copies.get(), time.monotonic()
        outcome, by = "survived", ""
        try:
            for tests in batches:
                outcome, by = self._meet(copy, mutant, tests)
                if outcome != "survived":
                    break
        finally:
            self.copies.put(copy)
        return record(mutant) | {"outcome": outcome, "by": by, "seconds": round(time.monotonic() - begin, 1)}

    def _meet(self, copy: Path, mutant: Mutant, tests: list[str]) -> tuple[str, str]:
        """Outcome of a mutant before some tests, and which one of them it was."""
        limit = PATIENCE * sum(self.executed[test].seconds for test in tests) + SECONDS_MORE
        path = copy / mutant.path
        original = path.read_bytes()
        try:
            path.write_bytes(mutant.applied(original))
            code, failed = run_tests(copy, tests, limit)
        finally:
            path.write_bytes(original)
        if code == 0:
            return "survived", ""
        blamed = [failed] if failed in tests else tests
        # What fails without the mutant too says nothing of it: it may depend on its neighbours, or on other work here.
        if failed in self.sound or run_tests(copy, blamed, limit)[0] == 0:
            self.sound.update([failed] if failed else [])
            return "timed out" if code is None else "killed", failed or blamed[0]
        print(f"left out, since it fails without any mutant: {' '.join(blamed)}", flush=True)
        for test in blamed:
            self.executed[test].passed = False
        left = [test for test in tests if test not in blamed]
        return self._meet(copy, mutant, left) if left else ("survived", "")


def run_tests(
    copy: Path, tests: list[str], limit: float, watched: tuple[list[str], Path] | None = None
) -> tuple[int | None, str]:
    """Run tests in a copy of the tree until one fails.

    Args:
        copy: of the tree
        tests: files, or names of tests
        limit: seconds after which they are stopped
        watched: packages whose executed lines are to be recorded, and the file for that; then all tests are run

    Returns:
        exit code of pytest, None if it was stopped; name of what failed, if a test did
    """
    receiver, sender = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=_run_pytest, args=(copy, tests, sender, watched))
    process.start()
    sender.close()
    try:
        process.join(limit)
        failed = ""
        with suppress(EOFError):
            failed = receiver.recv() if receiver.poll() else ""
        return process.exitcode, failed
    finally:
        if process.exitcode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.join()


class _FirstFailure:
    """A plugin of pytest that tells which test failed first."""

    def __init__(self, sender: Connection) -> None:
        self._sender = sender
        self._told = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self._told:
            self._told = True
            self._sender.send(report.nodeid)


def _run_pytest(copy: Path, tests: list[str], sender: Connection, watched: tuple[list[str], Path] | None) -> None:
    """Run tests in this process, which is a new one with nothing of the package in it, and end it."""
    os.setsid()
    os.chdir(copy)
    silent = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silent, stream)
    os.environ["PYTHONPATH"] = str(copy)
    # A fault can leave a file as long, and its time as old, as the compiled one beside it: no such file is kept.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    # Without what this script itself has imported from its own tree.
    for name in [name for name in sys.modules if name in ("__mp_main__", *OWN_MODULES)]:
        del sys.modules[name]
    sys.path[:] = [str(copy), *(path for path in sys.path if Path(path) != REPOSITORY / "tests")]
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    if watched is None:
        os._exit(pytest.main(["-x", *options, *tests], [_FirstFailure(sender)]))
    packages, kept = watched
    with tempfile.TemporaryDirectory() as scratch:
        recorder = Recorder(copy, packages, Path(scratch))
        code = pytest.main([*options, *tests], [recorder])
        write_executed(kept, recorder.result())
    os._exit(code)


def record(mutant: Mutant) -> dict[str, Any]:
    """What is written about a mutant beside its outcome."""
    return {"mutant": mutant.name, "kind": mutant.kind, "after": mutant.after, "source": mutant.source}


def read_results(path: Path, again: bool) -> dict[str, dict[str, Any]]:
    """Results so far by mutant, the last one of each; without those that survived if they are to be tried again."""
    lines = path.read_text().splitlines() if path.is_file() else []
    results = {each["mutant"]: each for each in map(json.loads, lines)}
    return {name: each for name, each in results.items() if not again or each["outcome"] != "survived"}


def table(results: list[dict[str, Any]]) -> Iterator[str]:
    """Lines of a summary: shares by package, then the survivors."""
    packages: dict[str, list[str]] = {}
    for each in results:
        packages.setdefault(str(Path(each["mutant"].partition(":")[0]).parent), []).append(each["outcome"])
    for package, outcomes in [*sorted(packages.items()), ("all", [each["outcome"] for each in results])]:
        found = len(outcomes) - outcomes.count("survived")
        share = 100 * found / max(1, len(outcomes))
        late = outcomes.count("timed out")
        yield f"{package:32} {found} of {len(outcomes)} found ({share:.1f} %), {late} of them timed out"
    for each in results:
        if each["outcome"] == "survived":
            yield f"survived: {each['mutant']}\n          {each['source']}"


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one per mutant; made or gone on with")
    parser.add_argument("--mutants", type=int, default=200, help="how many (200)")
    parser.add_argument("--seed", type=int, default=0, help="which ones (0)")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (2)")
    parser.add_argument(
        "--seconds", type=float, default=120, help="of tests that execute a mutant's line, the quickest (120)"
    )
    parser.add_argument("--files", type=int, default=1, help="test files nearest to a mutant, run whole at last (1)")
    parser.add_argument("--tests", nargs="+", default=["tests"], help="folders or files of the tests to run (tests)")
    parser.add_argument("--again", action="store_true", help="try those that survived once more")
    default = ["lattice", "search", "training", "recognition"]
    parser.add_argument("--packages", nargs="+", default=default, help=f"of transducer_gn ({' '.join(default)})")
    return parser.parse_args()


def main() -> None:
    flags = parse_arguments()
    packages = [f"transducer_gn/{package}" for package in flags.packages]
    paths = [path for package in packages for path in sorted((REPOSITORY / package).glob("*.py"))]
    chosen = sample([each for path in paths for each in mutants_of(REPOSITORY, path)], flags.mutants, flags.seed)
    results = read_results(flags.out, flags.again)
    left = [mutant for mutant in chosen if mutant.name not in results]
    near = {test for mutant in left for test in nearest_tests(REPOSITORY, mutant.path)}
    files = sorted(test for test in near if any(Path(test).is_relative_to(folder) for folder in flags.tests))
    kept = flags.out.with_suffix(".executed")
    kept.mkdir(parents=True, exist_ok=True)
    bench, lock = Bench(REPOSITORY), threading.Lock()

    def watch(file: str) -> None:
        bench.watch(file, packages, kept.resolve())
        print(f"watched {file}", flush=True)

    def try_one(mutant: Mutant) -> None:
        result = bench.try_mutant(mutant, bench.batches(mutant, flags.seconds, flags.files))
        with lock, flags.out.open("a") as file:
            results[mutant.name] = result
            file.write(json.dumps(result) + "\n")
            print(f"{len(results)} {result['outcome']} ({result['seconds']} s): {mutant.name}", flush=True)

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(flags.jobs) as pool:
        for job in range(flags.jobs):
            bench.add_copy(Path(folder).resolve() / str(job))
        list(pool.map(watch, files))
        list(pool.map(try_one, left))
    print(*table([results[mutant.name] for mutant in chosen] if chosen else list(results.values())), sep="\n")


if __name__ == "__main__":
    main()
