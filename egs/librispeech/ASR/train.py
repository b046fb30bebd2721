#!/usr/bin/env python3
"""Train a Transducer, locally normalised or on its way to global normalisation."""

from transducer_gn.commands.train import main
from transducer_gn.common.command_line import run_command

if __name__ == "__main__":
    run_command(main)
