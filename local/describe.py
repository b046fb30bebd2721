#!/usr/bin/env python3
"""Print a table of a prepared folder's parts and draw a few of its utterances."""

from transducer_gn.commands.describe import main
from transducer_gn.common.command_line import run_command

if __name__ == "__main__":
    run_command(main)
