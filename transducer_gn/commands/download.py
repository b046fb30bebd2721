"""Stage 0: download what --dl-dir does not hold yet: LibriSpeech, noise, a pretrained front end."""

from dataclasses import dataclass
from pathlib import Path

from transducer_gn.common.command_line import CommandParser, command_parser, settings_from
from transducer_gn.common.errors import UserError
from transducer_gn.data.download import CORPORA, download_corpus, download_noise, download_package_file


@dataclass(frozen=True)
class DownloadOptions:
    """Download a corpus, noise, or a pretrained front end.

    Attributes:
        dl_dir: where downloads go; parts that are already there are left alone
        corpus: librispeech, librispeech-100 or mini-librispeech
        musan: also the noise corpus MUSAN
        front_end: also the pretrained encoder Moonshine tiny
    """

    dl_dir: Path
    corpus: str | None = None
    musan: bool = False
    front_end: bool = False


def parser() -> CommandParser:
    """Flags of the command."""
    return command_parser(__doc__, DownloadOptions)


def main(arguments: list[str] | None = None) -> None:
    """Download a corpus, or noise."""
    options = settings_from(DownloadOptions, parser().parse_args(arguments))
    if options.corpus is not None:
        if options.corpus not in CORPORA:
            raise UserError(f"--corpus must be one of {', '.join(CORPORA)}, not {options.corpus!r}")
        print(f"Corpus: {download_corpus(options.corpus, options.dl_dir)}")
    if options.musan:
        print(f"Noise: {download_noise(options.dl_dir)}")
    if options.front_end:
        # Imported late: torch takes seconds.
        from transducer_gn.model.moonshine_file import FILE_IN_PACKAGE, PACKAGE

        print(f"Front end: {download_package_file(PACKAGE, FILE_IN_PACKAGE, options.dl_dir / 'moonshine-tiny')}")
