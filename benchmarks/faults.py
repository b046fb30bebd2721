#!/usr/bin/env python3
"""Nothing lost: commands that are disturbed at random moments, against ones that nothing happens to.

  faults.py --faults 200 --seed 1 --json result.json
  faults.py --part prepare --part decode --part run --faults 30 --seed 1 --json result.json

  training    two ranks train a tiny model on made-up features, through the regulariser's ramp, alpha's slope and
              look-ahead groups. Again and again something goes wrong (fault_injection.py has the list), and the same
              command is called again, until the training is done; then the next one begins, until there were so many
              faults. Each must end with the checkpoints (parameters, running average, optimiser, schedule, place in the
              data, competitors searched ahead), metrics and best epoch of the undisturbed one, bit for bit
  prepare     prepare.sh on a tiny mini corpus and a little noise, disturbed in every stage: all files byte for byte
  decode      decode.py on many short utterances, disturbed between them: all results byte for byte
  run         run.sh on a tiny corpus, from prepare.sh to the report, disturbed in every stage: the data and results
              byte for byte, all checkpoints bit for bit, metrics but for seconds, the report's tables but that of times

All is done on a small disk that is mounted for it, which only a superuser can do; without one, training cannot be
disturbed, and to the others nothing is done that takes a disk.

The result is written after every run; with a file of an earlier call of the same seed, its faults count.

  lost        runs that ended otherwise, and hangs that were noticed too late; must be 0
  faults      how many there were
"""

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "tests"))

from fault_commands import Command, CommandDisturber  # noqa: E402
from fault_disks import can_do_all, small_disk  # noqa: E402
from fault_recipes import decode_command, prepare_command, run_command  # noqa: E402
from fault_tally import Tally  # noqa: E402
from fault_training import disturbed_trainings  # noqa: E402
from measure import write_result  # noqa: E402

from transducer_gn.common.processes import Progress  # noqa: E402

Part = Callable[[int, Tally, Path, Callable[[Tally], None]], None]


def disturbed(make: Callable[[Path], Command]) -> Part:
    """The part of the benchmark that disturbs a command."""

    def run(faults: int, tally: Tally, work: Path, note: Callable[[Tally], None]) -> None:
        """As many runs as the faults take, each compared with the undisturbed one.

        Args:
            tally: what was done before, which grows
            work: folder for everything
            note: is told of every run
        """
        progress = Progress("faults", faults - tally.faults)
        with small_disk(work / "disk") if can_do_all(work) else nullcontext():
            disturber = CommandDisturber(make(work), tally, work)
            while tally.faults < faults:
                before = tally.faults
                disturber.run(faults)
                note(tally)
                for _ in range(tally.faults - before):
                    progress.step()

    return run


PARTS: dict[str, Part] = {
    "training": disturbed_trainings,
    "prepare": disturbed(prepare_command),
    "decode": disturbed(decode_command),
    "run": disturbed(run_command),
}


def totals(parts: dict[str, Any]) -> dict[str, int]:
    """Faults and losses of all parts."""
    tallies = [Tally.from_json(values) for values in parts.values()]
    return {"lost": sum(len(tally.lost) for tally in tallies), "faults": sum(tally.faults for tally in tallies)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=sorted(PARTS), help="only this one (all); repeatable")
    parser.add_argument("--faults", type=int, default=200, help="of each part (200)")
    parser.add_argument("--seed", type=int, default=0, help="of moments and kinds (0)")
    parser.add_argument("--json", type=Path, help="file to write the result to, and to go on from")
    arguments = parser.parse_args()
    # What is asked to stop cleans up: processes, the mounted disk, files.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    there = arguments.json is not None and arguments.json.is_file()
    parts: dict[str, Any] = json.loads(arguments.json.read_text())["parts"] if there else {}
    for name in arguments.part or PARTS:
        known = parts.get(name)
        tally = Tally.from_json(known) if known and known["seed"] == arguments.seed else Tally(arguments.seed)

        def note(tally: Tally, name: str = name) -> None:
            parts[name] = tally.to_json()
            write_result(arguments.json, {"ratios": totals(parts), "parts": parts})

        with tempfile.TemporaryDirectory() as work:
            PARTS[name](arguments.faults, tally, Path(work), note)
        for kind, number in tally.kinds.items():
            print(f"{name:10} {kind:40} {number:5}")
    for name, value in totals(parts).items():
        print(f"{name:51} {value:5}")
    sys.exit(1 if totals(parts)["lost"] else 0)


if __name__ == "__main__":
    main()
