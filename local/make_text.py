#!/usr/bin/env python3
"""Make one file of sentences of plain-text books, written as LibriSpeech's transcripts are."""

from transducer_gn.commands.make_text import main
from transducer_gn.common.command_line import run_command

if __name__ == "__main__":
    run_command(main)
