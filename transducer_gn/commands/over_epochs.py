"""Decode and measure a run at the end of every epoch: what it learns when.

  transducer-gn over-epochs --exp-dir exp/mini-near/local-160 --sets [test-mini] --beam 8 --utterances 300

Results go to EXP-DIR/epochs/epoch-N, apart from those of decode.py and compute_latency.py. The same command goes on
with what was stopped, and with epochs that were trained since.
"""

import logging
from pathlib import Path

from transducer_gn.common.command_line import CommandParser, command_parser, settings_from
from transducer_gn.common.errors import UserError
from transducer_gn.config import EvaluationDataConfig, LatencyConfig, RecognitionConfig, SystemConfig
from transducer_gn.evaluation.decoding import set_up_process
from transducer_gn.evaluation.sweeps import EPOCHS, measure_point, trained_epochs
from transducer_gn.recognition.system import load_system


def parser() -> CommandParser:
    """Flags of the command."""
    made = command_parser(__doc__, RecognitionConfig, EvaluationDataConfig, LatencyConfig)
    made.add_argument("--exp_dir", type=Path, required=True, help="folder of the experiment")
    return made


def main(arguments: list[str] | None = None) -> None:
    """Go through the epochs."""
    flags = parser().parse_args(arguments)
    set_up_process()
    settings, choice = settings_from(RecognitionConfig, flags), settings_from(EvaluationDataConfig, flags)
    measured = settings_from(LatencyConfig, flags)
    epochs = trained_epochs(flags.exp_dir)
    if not epochs:
        raise UserError(f"--exp-dir {flags.exp_dir} has no epoch-N.pt; train first")
    for epoch in epochs:
        logging.info("epoch %d of %s", epoch, flags.exp_dir)
        system = load_system(flags.exp_dir, SystemConfig(epoch=epoch))
        measure_point(EPOCHS.place(flags.exp_dir, epoch), system, settings, choice, measured)
