#!/usr/bin/env python3
"""Decode and measure a run at the end of every epoch."""

from transducer_gn.commands.over_epochs import main
from transducer_gn.common.command_line import run_command

if __name__ == "__main__":
    run_command(main)
