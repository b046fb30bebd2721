#!/usr/bin/env python3
"""How many small faults in the program do the tests find? A tool to be run by hand, beside the tests it measures.

  python tests/mutations.py --out mutations.jsonl                    # 200 mutants, two at a time
  python tests/mutations.py --out mutations.jsonl --again            # those that survived once more, after new tests
  python tests/mutations.py --out mutations.jsonl --mutants 0        # only the table of what is there

Each mutant is written into a copy of the tree, and the test files that reach its module through their imports are run
there, its own and the nearest first, until one fails. A mutant is killed if a test fails, and timed out if a test file
takes several times as long as without it; both count as found. Results are JSON lines; a call that was stopped goes on
from there.
"""

import argparse
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
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from mutants import Mutant, mutants_of, sample
from reach import nearest_tests

REPOSITORY = Path(__file__).resolve().parents[1]
LEFT_OUT = (".git", ".venv", "data", "download", "exp", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache")
# A test file with a mutant may take so many times its usual time and so many seconds more.
PATIENCE = 4
SECONDS_MORE = 30
# New processes come from one that has read the large packages already, with one thread each.
os.environ.setdefault("OMP_NUM_THREADS", "1")
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["torch", "lhotse", "pytest", "hypothesis", "sentencepiece", "jsonargparse"])


@dataclass
class Bench:
    """Copies of the tree in which mutants are tried, and how long each test file takes without one.

    Attributes:
        root: the tree
        copies: those not in use
        usual: seconds of each test file on the unchanged tree
    """

    root: Path
    copies: Queue[Path] = field(default_factory=Queue)
    usual: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

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

    def try_mutant(self, mutant: Mutant, tests: Iterable[str]) -> dict[str, Any]:
        """What became of a mutant: killed, timed out (by which test file), or survived."""
        copy = self.copies.get()
        path, begin = copy / mutant.path, time.monotonic()
        original = path.read_bytes()
        try:
            outcome, by = "survived", ""
            for test in tests:
                limit = PATIENCE * self.usual_seconds(copy, test, path, original) + SECONDS_MORE
                path.write_bytes(mutant.applied(original))
                code = run_tests(copy, test, limit)
                if code != 0:
                    outcome, by = "timed out" if code is None else "killed", test
                    break
        finally:
            path.write_bytes(original)
            self.copies.put(copy)
        return record(mutant) | {"outcome": outcome, "by": by, "seconds": round(time.monotonic() - begin, 1)}

    def usual_seconds(self, copy: Path, test: str, path: Path, original: bytes) -> float:
        """How long a test file takes on the unchanged tree, where it must pass."""
        with self._lock:
            if test not in self.usual:
                path.write_bytes(original)
                begin = time.monotonic()
                if run_tests(copy, test, 1800) != 0:
                    sys.exit(f"{test} fails without any mutant; mend it first")
                self.usual[test] = time.monotonic() - begin
        return self.usual[test]


def run_tests(copy: Path, test: str, limit: float) -> int | None:
    """Exit code of pytest on one test file in a copy of the tree; None if it was stopped after `limit` seconds."""
    process = PROCESSES.Process(target=_run_pytest, args=(str(copy), test))
    process.start()
    try:
        process.join(limit)
        return process.exitcode
    finally:
        if process.exitcode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.join()


def _run_pytest(copy: str, test: str) -> None:
    """Run one test file in this process, which is a new one with nothing of the package in it, and end it."""
    os.setsid()
    os.chdir(copy)
    silent = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silent, stream)
    os.environ["PYTHONPATH"] = copy
    # A fault can leave a file as long, and its time as old, as the compiled one beside it: no such file is kept.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    # Without what this script itself has imported from its own tree.
    for name in [name for name in sys.modules if name in ("__mp_main__", "mutants", "reach", "import_graph")]:
        del sys.modules[name]
    sys.path[:] = [copy, *(path for path in sys.path if Path(path) != REPOSITORY / "tests")]
    os._exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", test]))


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
    parser.add_argument("--files", type=int, default=16, help="most test files to run for a mutant (16)")
    parser.add_argument("--again", action="store_true", help="try those that survived once more")
    default = ["lattice", "search", "training", "recognition"]
    parser.add_argument("--packages", nargs="+", default=default, help=f"of transducer_gn ({' '.join(default)})")
    return parser.parse_args()


def main() -> None:
    flags = parse_arguments()
    folders = [REPOSITORY / "transducer_gn" / package for package in flags.packages]
    everything = [
        each for folder in folders for path in sorted(folder.glob("*.py")) for each in mutants_of(REPOSITORY, path)
    ]
    chosen = sample(everything, flags.mutants, flags.seed)
    results = read_results(flags.out, flags.again)
    left = [mutant for mutant in chosen if mutant.name not in results]
    bench, lock = Bench(REPOSITORY), threading.Lock()

    def try_one(mutant: Mutant) -> None:
        tests = nearest_tests(REPOSITORY, mutant.path)[: flags.files]
        result = bench.try_mutant(mutant, tests)
        with lock, flags.out.open("a") as file:
            results[mutant.name] = result
            file.write(json.dumps(result) + "\n")
            print(f"{len(results)} {result['outcome']} ({result['seconds']} s): {mutant.name}", flush=True)

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(flags.jobs) as pool:
        for job in range(flags.jobs):
            bench.add_copy(Path(folder) / str(job))
        list(pool.map(try_one, left))
    print(*table([results[mutant.name] for mutant in chosen] if chosen else list(results.values())), sep="\n")


if __name__ == "__main__":
    main()
