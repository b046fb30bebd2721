#!/usr/bin/env python3
"""Gather all runs of a folder into tables and figures: text, JSON, PNG, SVG and one HTML page.

  report.py --exp-root exp                                  all runs in exp/
  report.py --exp-root exp --baseline local-continued --challenger global-0.3
  report.py --exp-root exp/a --seeds [exp/b,exp/c]          with means over three seeds

Run decode.py and compute_latency.py first; what is missing or broken is said in the report, and the rest is shown.
"""

from pathlib import Path

from transducer_gn.common.command_line import explained_disk_errors
from transducer_gn.common.errors import run_script
from transducer_gn.common.flags import parse_flags, settings_parser
from transducer_gn.evaluation.decoding import set_up_process
from transducer_gn.reporting.report import make_report, write_report
from transducer_gn.reporting.runs import choose_baseline, choose_challenger, find_runs
from transducer_gn.synthetic.report_extras import MiniCorpusExtras


def main() -> None:
    parser = settings_parser(__doc__)
    parser.add_argument("--exp_root", type=Path, required=True, help="folder that holds the runs' folders")
    parser.add_argument("--baseline", help="name of the local run to compare with (the one with the most updates)")
    parser.add_argument("--challenger", help="name of the global run to compare (the best on the dev set)")
    parser.add_argument(
        "--seeds", type=list[Path], default=[], help="folders like --exp-root with runs of the same names, of other seeds"
    )
    parser.add_argument("--data_dir", type=Path, help="what prepare.sh made (what the systems were trained on)")
    parser.add_argument("--title", default="Transducers, locally and globally normalised", help="heading of the report")
    parser.add_argument("--out", type=Path, help="folder for the report (EXP-ROOT/report)")
    flags = parse_flags(parser)
    set_up_process()
    with explained_disk_errors():
        extras = MiniCorpusExtras()
        runs = find_runs(flags.exp_root, extras)
        baseline = choose_baseline(runs, flags.baseline)
        challenger = choose_challenger(runs, flags.challenger)
        seeds = [find_runs(root, extras) for root in flags.seeds]
        report = make_report(flags.title, runs, baseline, challenger, flags.data_dir, seeds)
        page = write_report(report, flags.out or flags.exp_root / "report")
    print(report.text())
    print(f"The same with figures: {page}")


if __name__ == "__main__":
    run_script(main)
