#!/usr/bin/env python3
"""Decode and measure a run with chunks of several sizes."""

from transducer_gn.commands.over_chunks import main
from transducer_gn.common.command_line import run_command

if __name__ == "__main__":
    run_command(main)
