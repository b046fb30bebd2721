"""Recognise test sets and count errors.

  transducer-gn decode --exp-dir exp/global                        best epoch by the dev set, beam 50, all sets
  transducer-gn decode --exp-dir exp/global --epoch 30 --avg 5     an average over epochs
  transducer-gn decode --exp-dir exp/local --method greedy --streaming chunks --sets [test-clean]
  transducer-gn decode --compare exp/local exp/global              paired test between two systems that were decoded

Results go to EXP-DIR/beam_search or EXP-DIR/greedy_search. The same command goes on with a decode that was stopped.
"""

from dataclasses import asdict
from pathlib import Path

from jsonargparse import Namespace

from transducer_gn.common.command_line import CommandParser, command_parser, settings_from
from transducer_gn.common.errors import UserError
from transducer_gn.common.json_files import write_json
from transducer_gn.config import EvaluationDataConfig, RecognitionConfig, SystemConfig
from transducer_gn.evaluation.decoding import PartDecoder, chosen_parts, prepared_data, search_folder, set_up_process
from transducer_gn.evaluation.results import compare_results, find_results, read_results
from transducer_gn.recognition.system import load_system
from transducer_gn.reporting.system_tables import comparison_table, rates_table


def parser() -> CommandParser:
    """Flags of the command."""
    made = command_parser(__doc__, SystemConfig, RecognitionConfig, EvaluationDataConfig)
    made.add_argument("--exp_dir", type=Path, help="folder of the experiment")
    made.add_argument("--compare", type=Path, nargs=2, metavar=("A", "B"), help="experiment folders or results-*.json")
    made.add_argument("--json", type=Path, help="also write the comparison to this file")
    return made


def main(arguments: list[str] | None = None) -> None:
    """Decode, or compare what was decoded."""
    flags = parser().parse_args(arguments)
    set_up_process()
    if flags.compare:
        first, second = flags.compare
        compare(first, second, flags.json)
    elif flags.exp_dir:
        decode(flags)
    else:
        raise UserError("give --exp-dir to decode, or --compare A B")


def decode(flags: Namespace) -> None:
    """Decode all sets and print the error rates."""
    system = load_system(flags.exp_dir, settings_from(SystemConfig, flags))
    settings, choice = settings_from(RecognitionConfig, flags), settings_from(EvaluationDataConfig, flags)
    data, folder = prepared_data(choice, system), search_folder(flags.exp_dir, settings)
    parts = chosen_parts(choice, data)
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
        write_json(json_path, values)
