#!/usr/bin/env python3
"""Stage 4: train sentence piece models on the transcripts of the training parts."""

from transducer_gn.commands.train_token_model import main
from transducer_gn.common.command_line import run_command

if __name__ == "__main__":
    run_command(main)
