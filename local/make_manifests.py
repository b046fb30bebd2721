#!/usr/bin/env python3
"""Stage 1: check a corpus in LibriSpeech's layout and write recording and supervision manifests."""

from transducer_gn.commands.make_manifests import main
from transducer_gn.common.command_line import run_command

if __name__ == "__main__":
    run_command(main)
