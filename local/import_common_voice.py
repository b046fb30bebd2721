#!/usr/bin/env python3
"""Make a part in LibriSpeech's layout of a table of Common Voice and its clips."""

from transducer_gn.commands.import_common_voice import main
from transducer_gn.common.command_line import run_command

if __name__ == "__main__":
    run_command(main)
