"""The combined training manifest, and the checks of everything that prepare.sh produced."""

import random
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from lhotse.cut import Cut

from transducer_gn.common.errors import UserError
from transducer_gn.common.seeds import stable_seed
from transducer_gn.data.cuts import stored_features
from transducer_gn.data.index import ManifestIndex
from transducer_gn.data.layout import part_manifest
from transducer_gn.data.manifest_files import read_lines, write_lines
from transducer_gn.data.prepared import TRAINING_MANIFEST, PreparedData
from transducer_gn.data.tokenizer import UNKNOWN, Tokenizer

DECODED_PER_PART = 20


def combine_training_parts(data: PreparedData, seed: int) -> None:
    """Write `cuts_train.jsonl.gz`: the cuts of all training parts in one random order."""
    lines = [line for part in data.parts("train") for line in read_lines(part_manifest(data.folder, part))]
    random.Random(stable_seed("training manifest", seed)).shuffle(lines)
    write_lines(data.folder / TRAINING_MANIFEST, lines)


def index_training_manifest(data: PreparedData, tokenizers: Iterable[Tokenizer]) -> None:
    """Make the index of a large training manifest, so that no run has to, with numbers of tokens for all models."""
    utterances = data.training_utterances()
    if isinstance(utterances, ManifestIndex):
        print(f"Index of the training manifest: {utterances.folder}, {len(utterances)} utterances", flush=True)
        for tokenizer in tokenizers:
            utterances.tokens(tokenizer)


def validate(data: PreparedData, tokenizers: Iterable[Tokenizer]) -> None:
    """Check every cut of every part, its features' place on disk, and some features themselves; stop at a fault."""
    tokenizers = list(tokenizers)
    speakers: dict[str, set[str]] = {}
    for role in ("train", "dev", "test"):
        speakers[role] = set()
        for part in data.parts(role):
            speakers[role] |= validate_part(data, part, tokenizers if role == "train" else [])
    for role in ("dev", "test"):
        if shared := speakers["train"] & speakers[role]:
            print(f"Note: {len(shared)} speakers are in training and in {role} parts, for example {min(shared)}")


def validate_part(data: PreparedData, part: str, tokenizers: list[Tokenizer]) -> set[str]:
    """Check one part; return its speakers."""
    manifest = part_manifest(data.folder, part)
    # A front end that is trained along reads audio, and has no features.
    is_stored = (manifest.parent / part).is_dir()
    sizes: dict[str, int] = {}
    ids: set[str] = set()
    speakers: set[str] = set()
    total = sum(1 for _ in read_lines(manifest))
    decode_every = max(1, total // DECODED_PER_PART)
    for index, cut in enumerate(data.cuts(part)):
        fault = cut_fault(cut, tokenizers)
        if fault is None and cut.id in ids:
            fault = "its id appears twice"
        if fault is None and is_stored:
            fault = archive_fault(cut, sizes) or (features_fault(cut) if index % decode_every == 0 else None)
        if fault is not None:
            advice = f"delete {manifest.parent} and run prepare.sh again"
            raise UserError(f"{manifest}, cut {cut.id}: {fault}; {advice}")
        ids.add(cut.id)
        speakers.add(cut.supervisions[0].speaker)
    return speakers


def cut_fault(cut: Cut, tokenizers: list[Tokenizer]) -> str | None:
    """Return what is wrong with what is said in a cut, or None."""
    if len(cut.supervisions) != 1:
        return f"{len(cut.supervisions)} supervisions instead of one"
    supervision = cut.supervisions[0]
    if supervision.start < 0 or supervision.end > cut.duration + 1e-3:
        return "its supervision does not lie inside it"
    if not supervision.text:
        return "its text is empty"
    if any(UNKNOWN in tokenizer.encode(supervision.text) for tokenizer in tokenizers):
        return "its text has characters that the token model does not know"
    return None


def archive_fault(cut: Cut, sizes: dict[str, int]) -> str | None:
    """Return what is wrong with the place of a cut's features, or None; `sizes` remembers those of archives."""
    if not cut.has_features:
        return "it has no features"
    archive = cut.features.storage_path
    if archive not in sizes:
        sizes[archive] = Path(archive).stat().st_size if Path(archive).is_file() else -1
    try:
        end = sum(map(int, cut.features.storage_key.split(",")))
    except (ValueError, AttributeError):
        return f"its features have no place in {archive}"
    if end > sizes[archive]:
        return f"its features are missing in {archive}"
    return None


def features_fault(cut: Cut) -> str | None:
    """Read a cut's features and return what is wrong with them, or None; UserError if they cannot be read."""
    return None if np.isfinite(stored_features(cut)).all() else "its features are not finite"
