"""A tiny corpus of noise prepared with a pretrained front end whose parameters are random, as prepare.sh would."""

from pathlib import Path

import yaml
from small_corpora import write_chapter
from small_systems import moonshine_model, moonshine_model_config

from transducer_gn.commands import compute_features, finish_manifests, make_manifests, train_token_model
from transducer_gn.recognition.stored_front_end import store_front_end

PIECES = 22


def write_corpus(root: Path) -> None:
    """Parts train-a and dev-a, three speakers."""
    for part, speaker in (("train-a", 1), ("train-a", 2), ("dev-a", 3)):
        write_chapter(root / part / str(speaker) / "7", [f"{speaker}-7-{index:04d}" for index in range(4)], 3.0)


def write_front_end(folder: Path) -> Path:
    """A front end's parameters and standardisation; gives the file."""
    folder.mkdir(parents=True, exist_ok=True)
    front_end = moonshine_model(moonshine_model_config()).front_end
    assert front_end is not None
    store_front_end(front_end, folder)
    return folder / "front_end.pt"


def write_conf(path: Path, **front_end: object) -> Path:
    """The settings of the tiny system, with changes of its front end."""
    settings = {"kind": "moonshine-tiny", "layers": [1, 2], "chunk": 320, "left_chunks": 2} | front_end
    path.write_text(yaml.safe_dump({"model": {"front_end": settings}}))
    return path


def prepare(root: Path, data: Path, front_end_file: Path, conf: Path, speeds: str = "[]") -> None:
    """All stages of prepare.sh."""
    make_manifests.main(["--corpus-dir", str(root), "--data-dir", str(data), "--nj", "1"])
    features = ["--data-dir", str(data), "--nj", "1", "--speed-factors", speeds, "--conf", str(conf)]
    compute_features.main([*features, "--front-end-file", str(front_end_file)])
    train_token_model.main(["--data-dir", str(data), "--vocab-sizes", f"[{PIECES}]"])
    finish_manifests.main(["--data-dir", str(data)])
