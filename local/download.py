#!/usr/bin/env python3
"""Stage 0 for LibriSpeech: download what --dl-dir does not hold yet."""

from pathlib import Path

from transducer_gn.common.command_line import run_program
from transducer_gn.common.errors import UserError
from transducer_gn.data.download import CORPORA, download_corpus, download_noise


def main(dl_dir: Path, corpus: str | None = None, musan: bool = False) -> None:
    """Download a corpus, or noise.

    Args:
        dl_dir: Where downloads go; parts that are already there are left alone.
        corpus: librispeech, librispeech-100 or mini-librispeech.
        musan: Also the noise corpus MUSAN.
    """
    if corpus is not None:
        if corpus not in CORPORA:
            raise UserError(f"--corpus must be one of {', '.join(CORPORA)}, not {corpus!r}")
        print(f"Corpus: {download_corpus(corpus, dl_dir)}")
    if musan:
        print(f"Noise: {download_noise(dl_dir)}")


if __name__ == "__main__":
    run_program(main)
