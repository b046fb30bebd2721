#!/usr/bin/env python3
"""Gather all runs of a folder into tables and figures: text, JSON, PNG, SVG and one HTML page."""

from transducer_gn.commands.report import main
from transducer_gn.common.command_line import run_command

if __name__ == "__main__":
    run_command(main)
