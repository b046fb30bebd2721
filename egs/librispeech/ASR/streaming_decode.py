#!/usr/bin/env python3
"""Recognise audio as it arrives and print the text as it changes."""

from transducer_gn.commands.streaming_decode import main
from transducer_gn.common.command_line import run_command

if __name__ == "__main__":
    run_command(main)
