#!/usr/bin/env python3
"""Let a predictor read text before it hears speech."""

from transducer_gn.commands.read_text import main
from transducer_gn.common.command_line import run_command

if __name__ == "__main__":
    run_command(main)
