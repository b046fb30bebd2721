"""Train a Transducer, locally normalised or on its way to global normalisation.

  transducer-gn train --config conf/mini.yaml --exp-dir exp/local
  transducer-gn train --config conf/mini.yaml --exp-dir exp/global --branch-from exp/local/epoch-10.pt \
      --normalisation.alpha 0.3 --normalisation.regulariser 0.01

The same command resumes a run that was stopped. Several processes: --world-size 8, or start this script with torchrun.
With --check it says what the run would be on this machine (device, batches, memory, time) and ends without training.
"""

import os
import sys
from contextlib import ExitStack
from pathlib import Path

from transducer_gn.commands import with_threads  # noqa: F401 (loads torch)
from transducer_gn.common.command_line import CommandParser, explained_disk_errors, run_command
from transducer_gn.common.errors import UserError
from transducer_gn.common.files import sole_user
from transducer_gn.common.processes import no_children_left
from transducer_gn.common.run_files import TRAINING_LOCK
from transducer_gn.config import config_parser, read_config
from transducer_gn.training.check import check_run
from transducer_gn.training.distributed import join_world, last_words, launch
from transducer_gn.training.logbook import start_log
from transducer_gn.training.trainer import Trainer


def parser() -> CommandParser:
    """Flags of the command."""
    made = config_parser(__doc__)
    made.add_argument("--exp_dir", type=Path, required=True, help="folder for everything this run writes")
    made.add_argument("--branch_from", type=Path, help="epoch-N.pt of a run to branch off from")
    made.add_argument("--world_size", type=int, default=1, help="processes to start on this machine, one per GPU")
    made.add_argument(
        "--device", choices=["auto", "cpu", "cuda"], default="auto",
        help="auto is a GPU where there is one; several processes compute on CPUs only with cpu",
    )  # fmt: skip
    made.add_argument("--check", action="store_true", help="say what would be run, and whether it fits; train nothing")
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
        launch(flags.world_size, flags.device, "-P", [__file__, *arguments], config.training.hang_timeout)
        return
    with (
        no_children_left(),
        last_words(),
        explained_disk_errors(),
        join_world(flags.device, config.training.hang_timeout) as world,
        ExitStack() as stack,
    ):
        if flags.check:
            check_run(config, flags.exp_dir, world, flags.branch_from, flags.allow_changed)
            return
        flags.exp_dir.mkdir(parents=True, exist_ok=True)
        if world.is_first:
            stack.enter_context(sole_user(flags.exp_dir / TRAINING_LOCK, f"trains in {flags.exp_dir}"))
        start_log(flags.exp_dir, world.rank)
        Trainer(config, flags.exp_dir, world, flags.branch_from, flags.allow_changed).run()


if __name__ == "__main__":
    run_command(main)
