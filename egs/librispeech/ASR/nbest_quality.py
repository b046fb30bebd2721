#!/usr/bin/env python3
"""Measure how good the lists are that stand for Z in training."""

from transducer_gn.commands.nbest_quality import main
from transducer_gn.common.command_line import run_command

if __name__ == "__main__":
    run_command(main)
