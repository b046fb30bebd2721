"""Train a Transducer, locally normalised or on its way to global normalisation.

  train.py --config conf/mini.yaml --exp-dir exp/local
  train.py --config conf/mini.yaml --exp-dir exp/global --branch-from exp/local/epoch-10.pt \
      --normalisation.alpha 0.3 --normalisation.regulariser 0.01

The same command resumes a run that was stopped. Several processes: --world-size 8, or start this script with torchrun.
"""

import os
import sys
from pathlib import Path

from transducer_gn.commands import with_threads  # noqa: F401 (loads torch)
from transducer_gn.common.command_line import CommandParser, run_command
from transducer_gn.common.errors import UserError
from transducer_gn.config import config_parser, read_config
from transducer_gn.training.distributed import join_world, launch
from transducer_gn.training.logbook import start_log
from transducer_gn.training.trainer import Trainer


def parser() -> CommandParser:
    """Flags of the command."""
    made = config_parser(__doc__)
    made.add_argument("--exp_dir", type=Path, required=True, help="folder for everything this run writes")
    made.add_argument("--branch_from", type=Path, help="epoch-N.pt of a run to branch off from")
    made.add_argument("--world_size", type=int, default=1, help="processes to start on this machine, one per GPU")
    made.add_argument("--allow_changed", action="store_true", help="resume even if settings that matter have changed")
    return made


def main(arguments: list[str] | None = None) -> None:
    """Train in this process, or in as many as the flags ask for."""
    arguments = sys.argv[1:] if arguments is None else arguments
    config, flags = read_config(parser(), arguments)
    if flags.world_size < 1:
        raise UserError(f"--world-size must be at least 1, not {flags.world_size}")
    if flags.world_size > 1 and "WORLD_SIZE" not in os.environ:
        # Without this file's folder on the path: its modules have names that others have, too.
        launch(flags.world_size, "-P", [__file__, *arguments])
        return
    flags.exp_dir.mkdir(parents=True, exist_ok=True)
    with join_world() as world:
        start_log(flags.exp_dir, world.rank)
        Trainer(config, flags.exp_dir, world, flags.branch_from, flags.allow_changed).run()


if __name__ == "__main__":
    run_command(main)
