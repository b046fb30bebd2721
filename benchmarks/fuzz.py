#!/usr/bin/env python3
"""Hostile input: everything that reads files or sockets is given inputs made to break it.

  fuzz.py --inputs 100000 --json result.json
  fuzz.py --reader onnx --inputs 1000000 --seed 1

Inputs are changed copies of good ones, and of those changed ones that reached new lines of the program (fuzzing.py).
Whatever is wrong with an input, reading it must end in a sentence (`UserError`), use no more than 1 GB of memory and
5 seconds of the processor, and never end the process. The result is written again and again; with a file of an earlier
call with the same seed, its inputs count, unless a reader failed.

  failures    kinds of failures; must be 0
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "tests"))

import fuzz_clients  # noqa: E402
import fuzz_data  # noqa: E402
import fuzz_files  # noqa: E402
import fuzz_systems  # noqa: E402
from fuzzing import Findings, fuzz  # noqa: E402
from measure import write_result  # noqa: E402

from transducer_gn.common.errors import UserError, run_script  # noqa: E402

TARGETS = fuzz_files.TARGETS | fuzz_data.TARGETS | fuzz_systems.TARGETS | fuzz_clients.TARGETS


def fuzz_reader(name: str, inputs: int, seed: int, known: Findings | None = None) -> Iterator[Findings]:
    """What came of so many inputs of one reader, and on the way there.

    Args:
        known: what came of the first of them, in an earlier call
    """
    # Inputs are read in a copy of this process (fork), which would wait for ever for threads that it has no copies of.
    torch.set_num_threads(1)
    # In memory where there is such a place: every input is a file.
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as folder:
        try:
            yield from fuzz(TARGETS[name](Path(folder) / "files"), inputs, seed, known or Findings())
        except UserError as error:
            raise UserError(f"{name}: {error}") from error


def known_findings(readers: dict[str, Any], name: str, seed: int) -> Findings | None:
    """What an earlier call with the same seed has found of a reader, unless that was a failure."""
    result = dict(readers.get(name, {}))
    if result.pop("seed", None) != seed or result["failures"]:
        return None
    return Findings.from_json(result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reader", action="append", choices=sorted(TARGETS), help="only this one (all); repeatable")
    parser.add_argument("--inputs", type=int, default=100_000, help="for each reader (100000)")
    parser.add_argument("--seed", type=int, default=0, help="of all inputs (0)")
    parser.add_argument("--json", type=Path, help="file to write the result to, and to go on from")
    arguments = parser.parse_args()
    readers = json.loads(arguments.json.read_text())["readers"] if arguments.json and arguments.json.exists() else {}
    # Libraries warn of much that they read, again and again.
    warnings.simplefilter("ignore")
    # What is asked to stop removes its files.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    for name in arguments.reader or TARGETS:
        known = known_findings(readers, name, arguments.seed)
        for found in fuzz_reader(name, arguments.inputs, arguments.seed, known):
            readers[name] = found.to_json() | {"seed": arguments.seed}
            failures = sum(len(result["failures"]) for result in readers.values())
            write_result(arguments.json, {"ratios": {"failures": failures}, "readers": readers})
        result = readers[name]
        print(f"{name:20} {result['inputs']:8} inputs  {result['read']:8} read  {result['sentences']:8} sentences  "
              f"{result['lines']:4} lines  {len(result['failures']):3} failures  slowest {result['slowest']:.2f} s",
              flush=True)  # fmt: skip
        for what, contents in result["failures"].items():
            print(f"    {what}: {result['messages'][what]}\n        {bytes.fromhex(contents[0])[:200]!r}")
    sys.exit(1 if any(result["failures"] for result in readers.values()) else 0)


if __name__ == "__main__":
    run_script(main)
