#!/usr/bin/env python3
"""Write a trained system as ONNX files."""

from transducer_gn.commands.export import main
from transducer_gn.common.command_line import run_command

if __name__ == "__main__":
    run_command(main)
