"""Measure when words come out, and how much earlier or later than in a baseline.

  transducer-gn compute-latency --exp-dir exp/global --baseline exp/local-continued
  transducer-gn compute-latency --exp-dir exp/local --sets [test-clean] --display false

The reference is aligned by the system itself over all alignments (the paper's appendix C). With --display true the test
sets are also recognised truly chunk by chunk, to see when each word is first shown and when it last changes, how steady
the text is meanwhile, and what it costs to show only what is steadier (docs/recognition.md defines the measures).
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from jsonargparse import Namespace

from transducer_gn.common.command_line import CommandParser, command_parser, settings_from
from transducer_gn.common.errors import UserError
from transducer_gn.common.json_files import write_json
from transducer_gn.config import EvaluationDataConfig, LatencyConfig, RecognitionConfig, SystemConfig
from transducer_gn.evaluation.decoding import chosen_parts, prepared_data, set_up_process
from transducer_gn.evaluation.latency_results import FOLDER, Latency, compare_latency, measure_part
from transducer_gn.recognition.system import load_system
from transducer_gn.reporting.stability_tables import (
    aligner_of,
    display_measures,
    price_table,
    stability_rows,
    stability_table,
)
from transducer_gn.reporting.system_tables import difference_table, latency_table, position_table
from transducer_gn.reporting.table import Table


def parser() -> CommandParser:
    """Flags of the command."""
    made = command_parser(__doc__, SystemConfig, RecognitionConfig, EvaluationDataConfig, LatencyConfig)
    made.add_argument("--exp_dir", type=Path, required=True, help="folder of the experiment")
    made.add_argument("--baseline", type=Path, help="folder of the experiment to compare with, at its best epoch")
    made.add_argument("--baseline_epoch", type=int, help="another epoch of the baseline")
    return made


def main(arguments: list[str] | None = None) -> None:
    """Measure, and compare with a baseline if there is one."""
    flags = parser().parse_args(arguments)
    set_up_process()
    own = measure(flags, flags.exp_dir, settings_from(SystemConfig, flags))
    print(latency_table(own.latencies).text())
    baseline = measure_baseline(flags, own) if flags.baseline else None
    show_live_texts(flags, own, baseline)
    if baseline is not None:
        compare(flags, own.latencies, baseline.latencies)


@dataclass(frozen=True)
class Measured:
    """Times of all sets under one system, and the milliseconds of its chunks."""

    latencies: list[Latency]
    chunk_ms: int


def measure(flags: Namespace, exp_dir: Path, system_choice: SystemConfig) -> Measured:
    """Times of all sets under one system."""
    system = load_system(exp_dir, system_choice)
    settings, choice = settings_from(RecognitionConfig, flags), settings_from(EvaluationDataConfig, flags)
    if settings.streaming == "chunks":
        # The same to the reference, and one name for both.
        settings = replace(settings, streaming="simulated")
    data, measured = prepared_data(choice, system), settings_from(LatencyConfig, flags)
    latencies = [
        measure_part(exp_dir / FOLDER, system, settings, measured, data, part, choice.max_duration)
        for part in chosen_parts(choice, data)
    ]
    frames = system.chunk(settings).size or 0
    return Measured(latencies, round(1000 * system.model.encoder.framing.frame_shift * frames))


def measure_baseline(flags: Namespace, own: Measured) -> Measured:
    """Times of the same sets under the baseline."""
    baseline = measure(flags, flags.baseline, SystemConfig(epoch=flags.baseline_epoch, avg=flags.avg))
    if [x.part for x in own.latencies] != [x.part for x in baseline.latencies]:
        raise UserError("the two systems were trained on different data; name the test sets with --data-dir and --sets")
    return baseline


def show_live_texts(flags: Namespace, own: Measured, baseline: Measured | None) -> None:
    """Print how steady and how quick the live texts are, and what a steadier one costs; also write the latter."""
    aligning = baseline.latencies if baseline is not None else []
    table = stability_table(own.latencies, aligning, (flags.baseline or flags.exp_dir).name)
    if table is None:
        return
    print(table.text())
    holds = settings_from(LatencyConfig, flags).holds or [own.chunk_ms, 2 * own.chunk_ms]
    for number, latency in enumerate(own.latencies):
        measures = display_measures(latency, aligner_of(latency, aligning[number] if aligning else None), holds)
        print(price_table(latency.part, measures).text())
        values = {shown: {name: asdict(value) for name, value in by.items()} for shown, by in measures.items()}
        write_json(flags.exp_dir / FOLDER / f"display-{latency.part}-{latency.system}.json", values)


def compare(flags: Namespace, own: list[Latency], baseline: list[Latency]) -> None:
    """Print and write the differences to the baseline."""
    differences = {a.part: compare_latency(a, b) for a, b in zip(baseline, own, strict=True)}
    names = flags.baseline.name, flags.exp_dir.name
    title = f"{flags.exp_dir} against {flags.baseline}"
    print(difference_table(title, differences, names).text())
    for part, difference in differences.items():
        if difference.stability:
            rows = stability_rows(difference.stability)
            columns = ["live text", *names, "change", "95 % interval", "relative", "p"]
            print(Table(f"{part}: {title}", columns, rows, ["Paired bootstrap over utterances."]).text())
    for part, difference in differences.items():
        print(position_table(f"{part}: by position of the token", difference).text())
    values = {part: asdict(difference) for part, difference in differences.items()}
    write_json(flags.exp_dir / FOLDER / f"against-{flags.baseline.name}.json", values)
