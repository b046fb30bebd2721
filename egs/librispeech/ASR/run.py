#!/usr/bin/env python3
"""Run experiments, from data to report: what run.sh calls once its environment is there."""

from transducer_gn.commands.run import main
from transducer_gn.common.command_line import run_command

if __name__ == "__main__":
    run_command(main)
