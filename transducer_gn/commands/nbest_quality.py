"""Measure how good the lists are that stand for Z in training, by the size of the beam and by N: for any predictor.

  transducer-gn nbest-quality --checkpoints [exp/local/epoch-3.pt,exp/alpha-0.3/epoch-6.pt] --alpha 0.3

For every beam and every N: how often the search finds the reference, the reference's share of the list's Z, the list's
share of the Z of all that any of these searches found (exact Z has more), and the fewest errors of any hypothesis.
"""

import logging
from dataclasses import asdict, replace
from pathlib import Path

from transducer_gn.common.command_line import CommandParser, command_parser
from transducer_gn.common.errors import require
from transducer_gn.common.json_files import write_json
from transducer_gn.config import EvaluationDataConfig
from transducer_gn.evaluation.decoding import prepared_data, set_up_process, spread_batches
from transducer_gn.evaluation.list_quality import measure_lists, quality_row
from transducer_gn.recognition.system import load_checkpoint_system
from transducer_gn.reporting.table import Table

COLUMNS = ["checkpoint", "alpha", "beam", "N", "found", "share of reference", "share of all", "oracle WER, %"]
NOTES = [
    "Found: share of utterances whose search holds the reference. Share of reference: its mean share of the list's Z.",
    "Share of all: the list's mean share of the Z of everything that was found here. Oracle WER: by the hypothesis "
    "with the fewest errors in the whole beam.",
]


def parser() -> CommandParser:
    """Flags of the command."""
    made = command_parser(__doc__)
    made.add_argument("--checkpoints", type=list[Path], required=True, help="files of systems to look at")
    made.add_argument("--beams", type=list[int], default=[6, 12, 24], help="hypotheses that searches keep")
    made.add_argument("--counts", type=list[int], default=[5, 10, 20], help="numbers of competitors")
    made.add_argument("--utterances", type=int, default=100, help="utterances of the set, spread over it")
    made.add_argument("--set", help="a dev or test set (the first dev set)")
    made.add_argument("--data_dir", type=Path, help="what prepare.sh made (what each system was trained on)")
    made.add_argument("--max_duration", type=float, default=40.0, help="seconds of audio that are computed together")
    made.add_argument("--alpha", type=float, help="interpolation weight to search at (each checkpoint's own)")
    made.add_argument("--json", type=Path, help="also write all numbers to this file")
    return made


def main(arguments: list[str] | None = None) -> None:
    """Measure all checkpoints and print a table."""
    flags = parser().parse_args(arguments)
    alpha = flags.alpha
    require(alpha is None or 0 <= alpha <= 1, "--alpha", f"must be from 0 (global) to 1 (local), not {alpha}")
    require(flags.utterances >= 1, "--utterances", f"must be at least 1, not {flags.utterances}")
    require(flags.counts and min(flags.counts) >= 1, "--counts", f"must be numbers from 1 on, not {flags.counts}")
    beams = [beam for beam in sorted(flags.beams) if beam > min(flags.counts)]
    require(len(beams) > 0, "--beams", "have no room for competitors; one must be above the least of --counts")
    set_up_process()
    systems = [(path, load_checkpoint_system(path)) for path in flags.checkpoints]
    rows, values = [], []
    for path, system in systems:
        own = system if alpha is None else replace(system, alpha=alpha)
        data = prepared_data(EvaluationDataConfig(data_dir=flags.data_dir), own)
        batches = spread_batches(own, data, flags.set, flags.utterances, flags.max_duration)
        logging.info("%s", path)
        qualities, words = measure_lists(own, batches, beams, sorted(flags.counts))
        name = f"{(path.parent if path.is_file() else path).name} {own.name}"
        rows += [[name, f"{own.alpha:g}", *quality_row(quality, words)] for quality in qualities]
        lists = [asdict(quality) for quality in qualities]
        values.append({"checkpoint": name, "alpha": own.alpha, "words": words, "lists": lists})
    print(Table("Lists by beam and N", COLUMNS, rows, NOTES).text())
    if flags.json:
        write_json(flags.json, values)
