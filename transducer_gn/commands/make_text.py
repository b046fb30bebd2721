"""Make one file of sentences of plain-text books, such as Project Gutenberg's, for a predictor to read.

  transducer-gn make-text --books books --data-dir data/corpus --out books.txt

The sentences are written as LibriSpeech's transcripts are, a line each. Books that dev and test parts of the data
folder were read from are left out, and single sentences that quote them; so are books that are short or not English.
"""

from dataclasses import dataclass
from pathlib import Path

from transducer_gn.common.command_line import CommandParser, command_parser, settings_from
from transducer_gn.common.errors import UserError
from transducer_gn.data.books import RUN, held_out, write_books


@dataclass(frozen=True)
class TextOptions:
    """Make one file of sentences of plain-text books.

    Attributes:
        books: all *.txt below it are read
        data_dir: a prepared folder, whose dev and test parts are held out
        out: the file to write
    """

    books: Path
    data_dir: Path
    out: Path


def parser() -> CommandParser:
    """Flags of the command."""
    return command_parser(__doc__, TextOptions)


def main(arguments: list[str] | None = None) -> None:
    """Make the file."""
    options = settings_from(TextOptions, parser().parse_args(arguments))
    if not options.books.is_dir():
        raise UserError(f"there is no folder {options.books}; name a folder of plain-text books with --books")
    if options.out.suffix == ".txt" and options.out.resolve().is_relative_to(options.books.resolve()):
        raise UserError(f"--out {options.out} would be read as a book the next time; write it outside of --books")
    if options.out.is_dir():
        raise UserError(f"--out {options.out} is a folder; name a file")
    kept_out = held_out(options.data_dir)
    print(f"Held out: {len(kept_out)} runs of {RUN} words of dev and test parts")
    total = write_books(options.books, kept_out, options.out)
    print(f"{options.out}: {total.sentences} sentences, {total.words} words of {total.books} books")
