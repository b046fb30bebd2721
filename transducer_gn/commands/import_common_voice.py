"""Make a part in LibriSpeech's layout of a table of Common Voice and its clips.

  transducer-gn import-common-voice --table cv/validated.tsv --clips cv/clips --part corpus/common-voice

Clips of 1 to 20 seconds whose sentences have English words alone become FLAC of 16 kHz and transcripts as
LibriSpeech's are written; the others are listed in left_out.txt. Speakers have numbers from 900000 on.
"""

from dataclasses import dataclass
from pathlib import Path

from transducer_gn.common.command_line import CommandParser, command_parser, settings_from
from transducer_gn.common.errors import UserError
from transducer_gn.common.processes import default_jobs
from transducer_gn.common.stages import file_fingerprint, inputs_text, listing_fingerprint, made_from

RECORD = ".made.json"


@dataclass(frozen=True)
class CommonVoiceOptions:
    """Make a part of a table of Common Voice and its clips.

    Attributes:
        table: such as validated.tsv
        clips: the folder of the clips that the table names
        part: the folder to make, CORPUS/PART
        nj: processes at a time; the result does not depend on it
    """

    table: Path
    clips: Path
    part: Path
    nj: int = default_jobs()


def parser() -> CommandParser:
    """Flags of the command."""
    return command_parser(__doc__, CommonVoiceOptions)


def main(arguments: list[str] | None = None) -> None:
    """Make the part."""
    options = settings_from(CommonVoiceOptions, parser().parse_args(arguments))
    if not options.table.is_file():
        raise UserError(f"there is no file {options.table}; name a table of Common Voice with --table")
    if not options.clips.is_dir():
        raise UserError(f"there is no folder {options.clips}; name that of the clips with --clips")
    if options.nj < 1:
        raise UserError(f"--nj must be at least 1, not {options.nj}")
    clips = (file for file in options.clips.iterdir() if file.is_file())
    inputs = {"table": file_fingerprint(options.table), "clips": listing_fingerprint(options.clips, clips)}
    if made_from(options.part / RECORD, inputs):
        print(f"Common Voice: {options.part} is complete")
        return
    if options.part.exists() and not (options.part.is_dir() and not any(options.part.iterdir())):
        raise UserError(
            f"{options.part} is there already, and not made of this table and these clips; "
            "delete it, or choose another --part"
        )
    # Imported late: scipy takes a second, which a finished part does not need.
    from transducer_gn.data.common_voice import import_common_voice

    made = import_common_voice(
        options.table, options.clips, options.part, options.nj, (RECORD, inputs_text(inputs) + "\n")
    )
    print(f"{options.part}: {made.clips} clips by {made.speakers} speakers, {made.seconds / 3600:.2f} hours")
