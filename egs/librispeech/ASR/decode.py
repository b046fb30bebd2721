#!/usr/bin/env python3
"""Recognise test sets and count errors.

  decode.py --exp-dir exp/global                          best epoch by the dev set, beam 50, all dev and test sets
  decode.py --exp-dir exp/global --epoch 30 --avg 5       an average over epochs
  decode.py --exp-dir exp/local --method greedy --streaming chunks --sets [test-clean]
  decode.py --compare exp/local exp/global                paired test between two systems that were decoded

Results go to EXP-DIR/beam_search or EXP-DIR/greedy_search. The same command goes on with a decode that was stopped.
"""

import json
from dataclasses import asdict
from pathlib import Path

from transducer_gn.data.program import explained_disk_errors
from transducer_gn.errors import UserError, run_script
from transducer_gn.evaluation.decoding import DataChoice, PartDecoder, quieten, search_folder
from transducer_gn.evaluation.error_tables import comparison_table, rates_table
from transducer_gn.evaluation.flags import parse_flags, settings_from, settings_parser
from transducer_gn.evaluation.recognition import RecognitionSettings
from transducer_gn.evaluation.results import compare_results, find_results, read_results
from transducer_gn.evaluation.systems import SystemChoice, load_system
from transducer_gn.files import write_text


def main() -> None:
    parser = settings_parser(__doc__, SystemChoice, RecognitionSettings, DataChoice)
    parser.add_argument("--exp_dir", type=Path, help="folder of the experiment")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("A", "B"), help="experiment folders or results-*.json")
    parser.add_argument("--json", type=Path, help="also write the comparison to this file")
    flags = parse_flags(parser)
    quieten()
    with explained_disk_errors():
        if flags.compare:
            compare(*flags.compare, flags.json)
        elif flags.exp_dir:
            decode(flags)
        else:
            raise UserError("give --exp-dir to decode, or --compare A B")


def decode(flags) -> None:
    """Decode all sets and print the error rates."""
    system = load_system(flags.exp_dir, settings_from(SystemChoice, flags))
    settings, choice = settings_from(RecognitionSettings, flags), settings_from(DataChoice, flags)
    data, folder = choice.prepared(system), search_folder(flags.exp_dir, settings)
    parts = choice.parts(data)
    results = [PartDecoder(folder, system, settings, data, part, choice.max_duration).run() for part in parts]
    print(rates_table(results).text())
    print(f"Details: {folder}/errs-*{results[0].system}.txt")


def compare(first: Path, second: Path, json_path: Path | None) -> None:
    """Compare what two systems made of the sets that both have decoded."""
    found = find_results(first), find_results(second)
    parts = [part for part in found[0] if part in found[1]]
    if not parts:
        raise UserError(f"{first} and {second} have no decoded test set in common; run decode.py --exp-dir on both")
    sides = {part: tuple(read_results(side[part]) for side in found) for part in parts}
    differences = {part: compare_results(*pair) for part, pair in sides.items()}
    names = (first.name, second.name) if first.name != second.name else (str(first), str(second))
    print(comparison_table(f"{second} against {first}", differences, names).text())
    if json_path:
        values = {p: {name: asdict(value) for name, value in by.items()} for p, by in differences.items()}
        write_text(json_path, json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    run_script(main)
