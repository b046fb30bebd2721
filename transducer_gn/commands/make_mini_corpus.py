"""Stage 0 for `--corpus mini` and `mini-near`: speak the mini corpus with espeak-ng, in LibriSpeech's layout."""

from dataclasses import dataclass, replace
from pathlib import Path

from transducer_gn.common.command_line import CommandParser, command_parser, settings_from
from transducer_gn.common.errors import UserError
from transducer_gn.common.files import exclusive
from transducer_gn.common.processes import default_jobs
from transducer_gn.common.stages import Stage
from transducer_gn.config import MiniCorpusConfig


@dataclass(frozen=True)
class MiniCorpusOptions:
    """Where the mini corpus goes, and how long it is.

    Attributes:
        corpus_dir: where to write it
        nj: processes at a time; the result does not depend on it
        hours: hours of training audio, about; overrides --train
    """

    corpus_dir: Path
    nj: int = default_jobs()
    hours: float | None = None


def parser() -> CommandParser:
    """Flags of the command."""
    return command_parser(__doc__, MiniCorpusOptions, MiniCorpusConfig)


def main(arguments: list[str] | None = None) -> None:
    """Speak the mini corpus, unless it is there."""
    flags = parser().parse_args(arguments)
    options, settings = settings_from(MiniCorpusOptions, flags), settings_from(MiniCorpusConfig, flags)
    if options.hours is not None and not options.hours > 0:
        raise UserError(f"--hours must be more than 0, not {options.hours}")
    folder, inputs = options.corpus_dir, {"hours": options.hours, **settings.record()}
    stage = Stage(folder / ".made.json", inputs, [folder / "SPEAKERS.TXT"])
    if not stage.is_done():
        folder.mkdir(parents=True, exist_ok=True)
        # Also held by the processes that speak, so that a call waits for those of one that was killed.
        with exclusive(folder / ".lock", f"speaks in {folder}"):
            if not stage.is_done():
                speak(stage, options, settings)
                return
    print(f"Mini corpus: {folder} is complete")


def speak(stage: Stage, options: MiniCorpusOptions, settings: MiniCorpusConfig) -> None:
    """Speak all that is missing; no other call does so meanwhile."""
    # Imported late: scipy takes a second, which a finished stage does not need.
    from transducer_gn.synthetic.mini_corpus import MEAN_SECONDS, make_mini_corpus

    if options.hours is not None:
        settings = replace(settings, train=max(1, round(options.hours * 3600 / MEAN_SECONDS)))
    stage.begin()
    make_mini_corpus(options.corpus_dir, settings, options.nj)
    stage.finish()
