"""Let a predictor read text before it hears speech.

  transducer-gn read-text --config conf/moonshine.yaml --data.folder data/corpus --reading.text books.txt \
      --exp-dir exp/read --updates 5000
  transducer-gn train --config conf/moonshine.yaml --data.folder data/corpus --exp-dir exp/local \
      --training.predictor_from exp/read/epoch-0.pt --reading.text books.txt

The text has a sentence per line, written as the transcripts are. The same command goes on with what was stopped.
"""

import logging
from pathlib import Path

from transducer_gn.commands import with_threads  # noqa: F401 (loads torch)
from transducer_gn.common.command_line import CommandParser, explained_disk_errors
from transducer_gn.common.errors import UserError
from transducer_gn.common.files import sole_user
from transducer_gn.common.run_files import TRAINING_LOCK
from transducer_gn.config import config_parser, read_config
from transducer_gn.training.distributed import join_world
from transducer_gn.training.first_reading import read_first
from transducer_gn.training.logbook import start_log


def parser() -> CommandParser:
    """Flags of the command."""
    made = config_parser(__doc__)
    made.add_argument("--exp_dir", type=Path, required=True, help="folder for the checkpoint, epoch-0.pt")
    made.add_argument("--updates", type=int, default=5000, help="updates of reading.tokens tokens each")
    made.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto", help="auto is a GPU if there is one")
    return made


def main(arguments: list[str] | None = None) -> None:
    """Read."""
    config, flags = read_config(parser(), arguments)
    if flags.updates < 1:
        raise UserError(f"--updates must be at least 1, not {flags.updates}")
    with explained_disk_errors(), join_world(flags.device, config.training.hang_timeout) as world:
        flags.exp_dir.mkdir(parents=True, exist_ok=True)
        with sole_user(flags.exp_dir / TRAINING_LOCK, f"trains in {flags.exp_dir}"):
            start_log(flags.exp_dir, world.rank)
            logging.info("read: %s", read_first(config, flags.exp_dir, world, flags.updates))
