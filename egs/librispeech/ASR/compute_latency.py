#!/usr/bin/env python3
"""Measure when words come out, and how much earlier or later than in a baseline."""

from transducer_gn.commands.compute_latency import main
from transducer_gn.common.command_line import run_command

if __name__ == "__main__":
    run_command(main)
