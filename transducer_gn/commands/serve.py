"""Serve live recognition, and a page on which one sees the recogniser change its mind.

  transducer-gn serve --checkpoint exp/mini/alpha-0.3/epoch-4.pt
  transducer-gn serve --checkpoint exp/mini/local-continued --checkpoint exp/mini/alpha-0.3 --data-dir data/mini

A checkpoint may be a file, or the folder of an experiment for its best epoch. Two are shown side by side, on the same
audio; with --data-dir the page offers some of the corpus's sentences. By default only programs on this machine can
connect. docs/live.md has the protocol. SIGTERM or Ctrl-C lets streams finish, then ends the server.
"""

import logging
import sys
from pathlib import Path

from transducer_gn.common.command_line import CommandParser, command_parser, settings_from
from transducer_gn.common.errors import UserError, require
from transducer_gn.config import RecognitionConfig, ServingConfig

MOST_SYSTEMS = 2


def parser() -> CommandParser:
    """Flags of the command."""
    made = command_parser(__doc__, ServingConfig)
    made.add_argument(
        "--checkpoint", type=str, action="append", required=True, help="what to recognise with; may be given twice"
    )
    made.add_argument("--beam", type=int, default=4, help="hypotheses per stream")
    made.add_argument("--chunk", type=int, help="encoder frames per chunk; by default that of the settings")
    made.add_argument("--left_context", type=int, help="frames of history, a multiple of the chunk")
    made.add_argument("--max_tokens_per_frame", type=int, help="most tokens between two blanks; by default as decode")
    made.add_argument("--data_dir", type=Path, help="what prepare.sh made; its page offers some sentences of it")
    made.add_argument("--threads", type=int, default=1, help="processor threads of the recogniser")
    return made


def main(arguments: list[str] | None = None) -> None:
    """Serve until a signal comes."""
    flags = parser().parse_args(arguments)
    config = settings_from(ServingConfig, flags)
    require(len(flags.checkpoint) <= MOST_SYSTEMS, "--checkpoint", f"at most {MOST_SYSTEMS} are shown side by side")
    require(flags.threads > 0, "--threads", f"must be above 0, not {flags.threads}")
    settings = RecognitionConfig(
        beam=flags.beam,
        chunk=flags.chunk,
        left_context=flags.left_context,
        max_tokens_per_frame=flags.max_tokens_per_frame,
    )
    try:
        from transducer_gn.serving.server import serve_live
        from transducer_gn.serving.worker import WorkerConfig
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "websockets":
            raise
        raise UserError("the server needs the extra `serve`: pip install 'transducer_gn[serve]'") from error
    logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stderr)
    sentences = []
    if flags.data_dir is not None:
        from transducer_gn.serving.sentences import read_sentences

        sentences = read_sentences(flags.data_dir)
    print("loading", ", ".join(flags.checkpoint), file=sys.stderr, flush=True)
    worker = WorkerConfig(flags.checkpoint, settings, flags.threads, config.ahead)
    serve_live(config, worker, sentences, lambda address: print(f"listening on {address}", flush=True))
