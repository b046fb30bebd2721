"""Recognise recordings and print what they say.

  transducer-gn transcribe --checkpoint exp/mini/alpha-0.3 speech.wav recordings/
  transducer-gn transcribe --checkpoint exp/mini/alpha-0.3/epoch-4.pt --json speech.wav > speech.jsonl

Inputs are audio files and folders of them; any format that libsndfile reads, mono, 16 kHz. One line for each, its name
and its text, or with --json an object with the words and their times.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import torch

from transducer_gn.common.command_line import CommandParser, command_parser, settings_from
from transducer_gn.common.errors import UserError, require
from transducer_gn.common.processes import Progress
from transducer_gn.config import EVERYDAY, RecognitionConfig
from transducer_gn.recognition.audio import audio_files
from transducer_gn.recognition.system import load


def parser() -> CommandParser:
    """Flags of the command."""
    made = command_parser(__doc__, RecognitionConfig)
    made.set_defaults(beam=EVERYDAY.beam)
    made.add_argument("inputs", nargs="+", type=Path, help="audio files, or folders of audio files")
    made.add_argument("--checkpoint", type=Path, required=True, help="a checkpoint, or a folder for its best epoch")
    made.add_argument("--threads", type=int, default=1, help="processor threads")
    made.add_argument("--json", action="store_true", help="one JSON object per recording, with times of words")
    return made


def main(arguments: list[str] | None = None) -> None:
    """Transcribe all inputs; one that cannot be read is reported, and the others are recognised all the same."""
    flags = parser().parse_args(arguments)
    require(flags.threads > 0, "--threads", f"must be above 0, not {flags.threads}")
    torch.set_num_threads(flags.threads)
    settings = settings_from(RecognitionConfig, flags)
    files = audio_files(flags.inputs)
    system = load(flags.checkpoint)
    failed = 0
    progress = Progress("transcribed", len(files))
    for path in files:
        try:
            transcript = system.transcribe(path, settings)
        except UserError as error:
            failed += 1
            print(error, file=sys.stderr, flush=True)
        else:
            line = {"name": str(path), "text": transcript.text, "words": [asdict(word) for word in transcript.words]}
            print(json.dumps(line, ensure_ascii=False) if flags.json else f"{path}: {transcript.text}", flush=True)
        progress.step()
    if failed:
        raise UserError(f"{failed} of {len(files)} recordings could not be recognised")
