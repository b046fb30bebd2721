"""Gather all runs of a folder into tables and figures: text, JSON, PNG, SVG and one HTML page.

  transducer-gn report --exp-root exp                                  all runs in exp/
  transducer-gn report --exp-root exp --baseline local-continued --challenger global-0.3
  transducer-gn report --exp-root exp/a --seeds [exp/b,exp/c]          with means over three seeds
  transducer-gn report --exp-root exp/a --beside [exp/160,exp/320]     with curves of errors against delay

Run decode.py and compute_latency.py first; what is missing or broken is said in the report, and the rest is shown.
"""

from pathlib import Path

from transducer_gn.common.command_line import CommandParser, command_parser
from transducer_gn.config.experiments import ROLES, read_experiments
from transducer_gn.evaluation.decoding import set_up_process
from transducer_gn.reporting.report import Others, make_report, write_report
from transducer_gn.reporting.runs import choose_baseline, choose_challenger, find_runs
from transducer_gn.synthetic.report_extras import MiniCorpusExtras


def parser() -> CommandParser:
    """Flags of the command."""
    made = command_parser(__doc__)
    made.add_argument("--exp_root", type=Path, required=True, help="folder that holds the runs' folders")
    made.add_argument("--baseline", help="name of the local run to compare with (the one with the most updates)")
    made.add_argument("--challenger", help="name of the global run to compare (the best on the dev set)")
    made.add_argument(
        "--seeds",
        type=list[Path],
        default=[],
        help="folders like --exp-root with runs of the same names, of other seeds",
    )
    made.add_argument(
        "--beside",
        type=list[Path],
        default=[],
        help="folders like --exp-root of systems that were trained for other chunks; over_chunks.py measures them",
    )
    made.add_argument("--experiments", type=Path, help="file of conf/experiments that says what the runs are for")
    made.add_argument("--data_dir", type=Path, help="what prepare.sh made (what the systems were trained on)")
    made.add_argument("--title", default="Transducers, locally and globally normalised", help="heading of the report")
    made.add_argument("--out", type=Path, help="folder for the report (EXP-ROOT/report)")
    return made


def main(arguments: list[str] | None = None) -> None:
    """Write the report and print its tables."""
    flags = parser().parse_args(arguments)
    set_up_process()
    extras = MiniCorpusExtras()
    runs = find_runs(flags.exp_root, extras)
    names = [run.name for run in runs]
    experiments = read_experiments(flags.experiments) if flags.experiments else None
    roles = {role: experiments.in_role(role, names) if experiments else [] for role in ROLES}
    baseline = choose_baseline(runs, flags.baseline, roles["baseline"])
    challenger = choose_challenger(runs, flags.challenger, roles["challenger"])
    seeds, beside = ([find_runs(root, extras) for root in roots] for roots in (flags.seeds, flags.beside))
    others = Others(seeds, beside, roles["lookahead"])
    report = make_report(flags.title, runs, baseline, challenger, flags.data_dir, others)
    page = write_report(report, flags.out or flags.exp_root / "report")
    print(report.text())
    print(f"The same with figures: {page}")
