r"""Measure how much of the exact normaliser Z an N-best list covers, for systems with a finite-state predictor.

  transducer-gn nbest-coverage --checkpoints \
      [exp/mini/finite-state-local/epoch-5.pt,exp/mini/finite-state-global/epoch-7.pt]

For every checkpoint and every N: the share of Z that the reference and N competitors have, and how far the gradient of
the loss with this list is from the gradient of the exactly normalised loss. At alpha 1 neither has a normaliser, so for
local systems choose another: `--alpha 0.3` tells what a branch from them would see.
"""

import logging
from dataclasses import asdict, replace
from pathlib import Path

from jsonargparse import Namespace

from transducer_gn.common.command_line import CommandParser, command_parser
from transducer_gn.common.errors import UserError, require
from transducer_gn.common.json_files import write_json
from transducer_gn.config import EvaluationDataConfig
from transducer_gn.evaluation.coverage import Coverage, coverage_row, measure_coverage
from transducer_gn.evaluation.decoding import prepared_data, set_up_process, spread_batches
from transducer_gn.recognition.system import System, load_checkpoint_system
from transducer_gn.reporting.figures import coverage_figure
from transducer_gn.reporting.table import Table

COLUMNS = ["checkpoint", "alpha", "N", "mean share", "median share", "gradient cosine", "gradient distance"]


def parser() -> CommandParser:
    """Flags of the command."""
    made = command_parser(__doc__)
    made.add_argument("--checkpoints", type=list[Path], required=True, help="files of systems to look at")
    made.add_argument("--counts", type=list[int], default=[1, 2, 5, 10, 20, 50], help="numbers of competitors")
    made.add_argument("--utterances", type=int, default=40, help="utterances of the dev set, spread over it")
    made.add_argument("--max_tokens_per_frame", type=int, default=2, help="of Z, of the lists and of the search")
    made.add_argument("--max_duration", type=float, default=10.0, help="seconds of audio that are computed together")
    made.add_argument("--alpha", type=float, help="interpolation weight of lists and losses (each checkpoint's own)")
    made.add_argument("--out", type=Path, help="folder for all numbers, coverage.json, and their figure")
    return made


def main(arguments: list[str] | None = None) -> None:
    """Measure all checkpoints and print a table."""
    flags = parser().parse_args(arguments)
    for name in ("utterances", "max_tokens_per_frame"):
        require(flags[name] >= 1, f"--{name.replace('_', '-')}", f"must be at least 1, not {flags[name]}")
    alpha = flags.alpha
    require(alpha is None or 0 <= alpha <= 1, "--alpha", f"must be from 0 (global) to 1 (local), not {alpha}")
    require(flags.counts and min(flags.counts) >= 1, "--counts", f"must be numbers from 1 on, not {flags.counts}")
    set_up_process()
    systems = [(path, finite_state_system(path, flags.alpha)) for path in flags.checkpoints]
    measured = [(path, system, measure(system, flags)) for path, system in systems]
    rows = [coverage_row(f"{path.parent.name} {system.name}", system, x) for path, system, xs in measured for x in xs]
    print(Table("Share of exact Z, and gradients against the exact one's", COLUMNS, rows).text())
    if flags.out:
        flags.out.mkdir(parents=True, exist_ok=True)
        values = [
            {
                "run": path.parent.name,
                "checkpoint": system.name,
                "alpha": system.alpha,
                "lists": [asdict(x) for x in xs],
            }
            for path, system, xs in measured
        ]
        write_json(flags.out / "coverage.json", values)
        coverage_figure([(f"{path.parent.name} {s.name}", xs) for path, s, xs in measured]).save(flags.out)


def finite_state_system(path: Path, alpha: float | None) -> System:
    """The system of a checkpoint, at its own alpha if None is given; UserError if its exact Z cannot be computed."""
    system = load_checkpoint_system(path)
    if system.config.model.predictor.kind != "finite-state":
        raise UserError(f"{path}: exact Z needs a finite-state predictor, and this model's remembers all tokens")
    return system if alpha is None else replace(system, alpha=alpha)


def measure(system: System, flags: Namespace) -> list[Coverage]:
    """Coverage over some utterances of the dev set."""
    data = prepared_data(EvaluationDataConfig(), system)
    logging.info("%s", system.name)
    batches = spread_batches(system, data, None, flags.utterances, flags.max_duration)
    return measure_coverage(system, batches, flags.counts, flags.max_tokens_per_frame)
