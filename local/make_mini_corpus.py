#!/usr/bin/env python3
"""Stage 0 for `--corpus mini`: speak the mini corpus with espeak-ng, in LibriSpeech's layout."""

from transducer_gn.commands.make_mini_corpus import main
from transducer_gn.common.command_line import run_command

if __name__ == "__main__":
    run_command(main)
