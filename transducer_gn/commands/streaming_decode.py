"""Recognise audio as it arrives and print the text as it changes.

  transducer-gn stream --checkpoint exp/global speech.wav recordings/
  arecord -t raw -f S16_LE -r 16000 -c 1 | transducer-gn stream --checkpoint exp/global/epoch-40.pt -

Inputs are audio files, folders of them, or - for raw PCM (mono, 16 bits, little-endian, 16 kHz) on standard input. On a
terminal the text is rewritten in place, with | after the part that will not change any more; with --json every change
is one line. At the end, what it took: on standard error, or as the last line with --json.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import torch

from transducer_gn.common.command_line import CommandParser, command_parser, settings_from
from transducer_gn.common.errors import UserError
from transducer_gn.common.units import SAMPLING_RATE
from transducer_gn.config import DisplayConfig, RecognitionConfig
from transducer_gn.recognition.audio import audio_files, read_pieces, read_raw_pieces
from transducer_gn.recognition.live import Display, Source, recognise_sources
from transducer_gn.recognition.system import load_checkpoint_system


def parser() -> CommandParser:
    """Flags of the command."""
    made = command_parser(__doc__, DisplayConfig)
    made.add_argument("inputs", nargs="+", help="audio files, folders of audio files, or - for standard input")
    made.add_argument("--checkpoint", type=Path, required=True, help="a checkpoint, or a folder for its best epoch")
    made.add_argument("--average", action="store_true", help="use the running average of the parameters")
    made.add_argument("--beam", type=int, default=4, help="hypotheses per stream")
    made.add_argument("--alpha", type=float, help="weight of local normalisation; by default that of training")
    made.add_argument(
        "--max_tokens_per_frame", type=int, help="most tokens between two blanks; by default as decode.py"
    )
    made.add_argument("--chunk", type=int, help="frames per chunk; by default that of the settings")
    made.add_argument("--left_context", type=int, help="frames of history, a multiple of the chunk")
    made.add_argument("--piece", type=float, default=0.16, help="seconds of audio to take from each input at a time")
    made.add_argument("--concurrent", type=int, default=8, help="inputs to recognise at a time")
    made.add_argument("--threads", type=int, default=1, help="processor threads")
    made.add_argument("--json", action="store_true", help="one JSON line per change")
    return made


def sources(inputs: list[str], piece: int) -> list[Source]:
    """One source per file, or standard input."""
    if "-" in inputs:
        if len(inputs) > 1:
            raise UserError("-: standard input cannot be combined with other inputs")
        return [Source("standard input", read_raw_pieces(sys.stdin.buffer, piece))]
    files = audio_files([Path(name) for name in inputs])
    return [Source(str(file), read_pieces(file, SAMPLING_RATE, piece)) for file in files]


def main(arguments: list[str] | None = None) -> None:
    """Recognise all inputs."""
    flags = parser().parse_args(arguments)
    for name in ("beam", "max_tokens_per_frame", "piece", "concurrent", "threads"):
        if getattr(flags, name) is not None and getattr(flags, name) <= 0:
            raise UserError(f"--{name.replace('_', '-')} must be above 0, not {getattr(flags, name)}")
    if flags.alpha is not None and not 0 <= flags.alpha <= 1:
        raise UserError(f"--alpha must be between 0 and 1, not {flags.alpha}")
    torch.set_num_threads(flags.threads)
    system = load_checkpoint_system(flags.checkpoint, flags.average, flags.alpha)
    settings = RecognitionConfig(
        beam=flags.beam,
        chunk=flags.chunk,
        left_context=flags.left_context,
        max_tokens_per_frame=flags.max_tokens_per_frame,
    )
    recogniser = system.recogniser(settings, settings_from(DisplayConfig, flags))
    inputs = sources(flags.inputs, max(1, round(flags.piece * SAMPLING_RATE)))
    totals = recognise_sources(recogniser, iter(inputs), flags.concurrent, Display(flags.json))
    if flags.json:
        print(json.dumps({"totals": asdict(totals) | {"real_time_factor": totals.real_time_factor}}))
    else:
        print(totals.sentence(), file=sys.stderr)
    if totals.failed:
        raise UserError(f"{totals.failed} of {totals.streams} inputs could not be recognised")
