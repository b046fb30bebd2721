#!/usr/bin/env python3
"""Stage 3: compute and store the features of all parts, and of noise if there is any."""

from transducer_gn.commands.compute_features import main
from transducer_gn.common.command_line import run_command

if __name__ == "__main__":
    run_command(main)
