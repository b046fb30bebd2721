#!/usr/bin/env python3
"""Measure how much of the exact normaliser Z an N-best list covers, for systems with a finite-state predictor."""

from transducer_gn.commands.nbest_coverage import main
from transducer_gn.common.command_line import run_command

if __name__ == "__main__":
    run_command(main)
