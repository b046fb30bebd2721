#!/usr/bin/env python3
"""Stage 2, optional: check the recordings of MUSAN (or any folder of 16 kHz WAV files) and write their manifest."""

from transducer_gn.commands.make_noise_manifest import main
from transducer_gn.common.command_line import run_command

if __name__ == "__main__":
    run_command(main)
