#!/usr/bin/env python3
"""Stage 6, optional: export features and manifests as lhotse Shar, for training on many machines."""

from transducer_gn.commands.export_shar import main
from transducer_gn.common.command_line import run_command

if __name__ == "__main__":
    run_command(main)
