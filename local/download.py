#!/usr/bin/env python3
"""Stage 0 for LibriSpeech: download what --dl-dir does not hold yet."""

from transducer_gn.commands.download import main
from transducer_gn.common.command_line import run_command

if __name__ == "__main__":
    run_command(main)
