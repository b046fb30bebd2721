#!/usr/bin/env python3
"""Recognise test sets and count errors."""

from transducer_gn.commands.decode import main
from transducer_gn.common.command_line import run_command

if __name__ == "__main__":
    run_command(main)
