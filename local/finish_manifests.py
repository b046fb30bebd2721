#!/usr/bin/env python3
"""Stage 5: combine and shuffle the training parts, then check everything that was produced."""

from transducer_gn.commands.finish_manifests import main
from transducer_gn.common.command_line import run_command

if __name__ == "__main__":
    run_command(main)
