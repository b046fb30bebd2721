"""Write a trained system as ONNX files that run without torch.

  transducer-gn export --checkpoint exp/global --output exported           the best epoch by the dev set
  transducer-gn export --checkpoint exp/global/epoch-40.pt --output exported --int8      weights of eight bits as well

The files are the encoder's step with its caches, the predictor's step, the joiner with the interpolation folded in, a
pretrained front end's step where there is one, the tokens, and metadata.json, which has all that a runtime has to know
(docs/export.md). The chunk, the left context and alpha become part of the files. `transducer_gn.load_exported`
recognises with them.
"""

from pathlib import Path

from transducer_gn.common.command_line import CommandParser, command_parser, settings_from
from transducer_gn.common.errors import UserError
from transducer_gn.config import RecognitionConfig, SystemConfig
from transducer_gn.recognition.system import load


def parser() -> CommandParser:
    """Flags of the command."""
    made = command_parser(__doc__, SystemConfig)
    made.add_argument("--checkpoint", type=Path, required=True, help="a checkpoint, or a folder for its best epoch")
    made.add_argument("--output", type=Path, required=True, help="folder to write to")
    made.add_argument("--chunk", type=int, help="encoder frames per chunk; by default that of the settings")
    made.add_argument("--left_context", type=int, help="frames of history, a multiple of the chunk")
    made.add_argument("--max_tokens_per_frame", type=int, help="most tokens between two blanks; as decode.py")
    made.add_argument("--int8", action="store_true", help="also write graphs with weights of eight bits")
    return made


def main(arguments: list[str] | None = None) -> None:
    """Load, export, and say what was written."""
    flags = parser().parse_args(arguments)
    try:
        from transducer_gn.export.write import export_system
    except ImportError as error:
        raise UserError(f"{error.name} is missing, which export.py needs: pip install transducer_gn[export]") from error
    system = load(flags.checkpoint, choice=settings_from(SystemConfig, flags))
    settings = RecognitionConfig(
        chunk=flags.chunk, left_context=flags.left_context, max_tokens_per_frame=flags.max_tokens_per_frame
    )
    written = export_system(system, flags.output, settings, flags.int8)
    for name, size in written.sizes.items():
        print(f"{flags.output / name}: {size / 1e6:.2f} MB")
    layout = written.layout
    print(
        f"{system.name}, alpha {layout.alpha:g}, chunks of {layout.chunk} frames that see {layout.left_context} before "
        f"them. Use it: transducer_gn.load_exported({str(flags.output)!r}).transcribe(...)"
    )
