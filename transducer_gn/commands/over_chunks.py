"""Decode and measure a run with chunks of several sizes: what errors cost in delay.

  transducer-gn over-chunks --exp-dir exp/mini/alpha-0.3 --chunks [4,8,16] --sets [test-mini] --beam 8

Results go to EXP-DIR/chunks/chunk-N, and a report draws them. The same command goes on with what was stopped.
"""

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from transducer_gn.common.command_line import CommandParser, command_parser, settings_from
from transducer_gn.common.errors import require
from transducer_gn.config import EvaluationDataConfig, LatencyConfig, RecognitionConfig, SystemConfig
from transducer_gn.evaluation.decoding import set_up_process
from transducer_gn.evaluation.sweeps import CHUNKS, measure_point
from transducer_gn.recognition.system import load_system


@dataclass(frozen=True)
class ChunksConfig:
    """Which sizes.

    Attributes:
        chunks: frames in a chunk, of 40 ms with filter banks; null for what the system is configured for alone
    """

    chunks: list[int] | None = None

    def __post_init__(self) -> None:
        require(all(size >= 1 for size in self.chunks or ()), "--chunks", f"must be above 0, not {self.chunks}")


def parser() -> CommandParser:
    """Flags of the command."""
    made = command_parser(__doc__, ChunksConfig, SystemConfig, RecognitionConfig, EvaluationDataConfig, LatencyConfig)
    made.add_argument("--exp_dir", type=Path, required=True, help="folder of the experiment")
    return made


def main(arguments: list[str] | None = None) -> None:
    """Go through the sizes."""
    flags = parser().parse_args(arguments)
    set_up_process()
    settings, choice = settings_from(RecognitionConfig, flags), settings_from(EvaluationDataConfig, flags)
    measured = settings_from(LatencyConfig, flags)
    require(settings.chunk is None, "--chunk", "stands for one size; here --chunks has them")
    require(settings.streaming != "lookahead", "--streaming", "lookahead has no chunks")
    system = load_system(flags.exp_dir, settings_from(SystemConfig, flags))
    own, sizes = system.chunk(settings).size, settings_from(ChunksConfig, flags).chunks
    if not system.config.model.has_chunks or (own is None and sizes is None):
        logging.info("%s hears whole utterances: there are no chunks of several sizes", flags.exp_dir)
        return
    sizes = sizes or ([] if own is None else [own])
    for size in sizes:
        # All are tried before the first takes its time.
        system.chunk(replace(settings, chunk=size))
    for size in sizes:
        logging.info("chunks of %d frames of %s", size, flags.exp_dir)
        measure_point(CHUNKS.place(flags.exp_dir, size), system, replace(settings, chunk=size), choice, measured)
