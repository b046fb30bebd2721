#!/usr/bin/env python3
"""Stage 0 for `--corpus mini`: speak the mini corpus with espeak-ng, in LibriSpeech's layout."""

from pathlib import Path

from transducer_gn.common.command_line import run_program
from transducer_gn.common.errors import UserError
from transducer_gn.common.processes import default_jobs
from transducer_gn.common.stages import Stage


def main(
    corpus_dir: Path,
    nj: int = default_jobs(),
    hours: float | None = None,
    train: int = 8000,
    dev: int = 600,
    test: int = 1500,
    ambiguous: float = 0.5,
    control: float = 0.1,
    speakers_per_voice: int = 2,
    seed: int = 0,
) -> None:
    """Speak the mini corpus.

    Args:
        corpus_dir: Where to write it.
        nj: Processes at a time; the result does not depend on it.
        hours: Hours of training audio, about; overrides --train.
        train: Training sentences.
        dev: Sentences of the dev part, by other voices.
        test: Sentences of the test part, by yet other voices.
        ambiguous: Share of sentences with an ambiguous word and, later, the word that settles it.
        control: Share of dev and test sentences with an ambiguous word that nothing settles.
        speakers_per_voice: Speakers (of different speed and pitch) for each espeak-ng voice.
        seed: All audio and text depend on this number.
    """
    settings = dict(
        hours=hours,
        train=train,
        dev=dev,
        test=test,
        ambiguous=ambiguous,
        control=control,
        speakers_per_voice=speakers_per_voice,
        seed=seed,
    )
    stage = Stage(corpus_dir / ".made.json", settings, [corpus_dir / "SPEAKERS.TXT"])
    if stage.is_done():
        print(f"Mini corpus: {corpus_dir} is complete")
        return
    # Imported late: scipy takes a second, which a finished stage does not need.
    from transducer_gn.config import MiniCorpusConfig
    from transducer_gn.synthetic.mini_corpus import MEAN_SECONDS, make_mini_corpus

    del settings["hours"]
    if hours is not None:
        if not hours > 0:
            raise UserError(f"--hours must be more than 0, not {hours}")
        settings["train"] = max(1, round(hours * 3600 / MEAN_SECONDS))
    stage.begin()
    make_mini_corpus(corpus_dir, MiniCorpusConfig(**settings), nj)
    stage.finish()


if __name__ == "__main__":
    run_program(main)
