"""A prepared data folder without audio: made-up features in which every word has a sound of its own.

Some utterances are the paper's example. Their first word is one of a pair whose sounds are the same; a later word tells
which it was. A streaming model that must decide at once cannot know.
"""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lhotse import CutSet, Features, MonoCut, SupervisionSegment
from lhotse.features.io import NumpyFilesWriter

from transducer_gn.data.tokenizer import save_tokenizer, train_tokenizer

PAIRS = [("MAIL", "ORDER", "NAIL", "POLISH"), ("BEAR", "HONEY", "PEAR", "TREE")]
FILLERS = ["AND", "BUT", "FOR", "NOT", "SO"]
FRAMES_PER_WORD = 16  # feature frames: four encoder frames


@dataclass(frozen=True)
class ToyData:
    """Where the data is, and its vocabulary."""

    folder: Path
    vocab_size: int


def sound(word: str) -> str:
    """The sound that a word is heard as: the first words of a pair sound the same."""
    return next((f"{first}/{other}" for first, _, other, _ in PAIRS if word in (first, other)), word)


def sentence(rng: random.Random, gap: int) -> tuple[list[str], dict[str, Any]]:
    """Words of an utterance, and what a manifest says about it."""
    if rng.random() < 0.7:
        first, settled, other, other_settled = rng.choice(PAIRS)
        pair = (first, settled) if rng.random() < 0.5 else (other, other_settled)
        return [pair[0], *rng.choices(FILLERS, k=rng.randint(1, gap)), pair[1]], {
            "kind": "ambiguous",
            "pair": [first, other],
        }
    return rng.choices(FILLERS, k=rng.randint(2, 4)), {"kind": "ordinary"}


def features_of(words: list[str], noise: np.random.Generator) -> np.ndarray:
    """[T', 80]: the words' sounds one after another, with silence around and noise on top."""
    parts = [np.zeros((8, 80))]
    for word in words:
        pattern = np.random.default_rng(sum(ord(c) * 7**i for i, c in enumerate(sound(word)))).normal(size=(2, 80))
        parts.append(np.repeat(pattern, FRAMES_PER_WORD // 2, axis=0))
    parts.append(np.zeros((16, 80)))
    clean = np.concatenate(parts)
    return (clean + 0.3 * noise.normal(size=clean.shape)).astype(np.float32)


def make_toy_data(folder: Path, train: int = 48, dev: int = 12, gap: int = 2, seed: int = 0) -> ToyData:
    """Write a folder that looks as prepare.sh leaves one."""
    rng, noise = random.Random(seed), np.random.default_rng(seed)
    (folder / "fbank").mkdir(parents=True)
    texts = []
    for part, count in (("train", train), ("dev", dev), ("test", dev)):
        cuts = []
        with NumpyFilesWriter(folder / "features" / part) as writer:
            for n in range(count):
                words, custom = sentence(rng, gap)
                texts.append(" ".join(words))
                cuts.append(_cut(f"{part}-{n}", words, custom, features_of(words, noise), writer))
        name = "cuts_train.jsonl.gz" if part == "train" else f"fbank/cuts_{part}.jsonl.gz"
        CutSet.from_cuts(cuts).to_jsonl(folder / name)
    (folder / "parts.json").write_text(json.dumps({"train": ["train"], "dev": ["dev"], "test": ["test"]}))
    words = sorted({word for text in texts for word in text.split()})
    tokenizer = train_tokenizer(texts, vocab_size=3 + len({c for word in words for c in word}) + 1 + len(words))
    save_tokenizer(tokenizer, folder / f"lang_unigram_{tokenizer.vocab_size}")
    return ToyData(folder, tokenizer.vocab_size)


def _cut(
    name: str, words: list[str], custom: dict[str, Any], features: np.ndarray, writer: NumpyFilesWriter
) -> MonoCut:
    duration = round(len(features) * 0.01, 2)
    stored = Features(
        type="fbank", num_frames=len(features), num_features=80, frame_shift=0.01, sampling_rate=16000, start=0.0,
        duration=duration, storage_type=writer.name, storage_path=str(writer.storage_path), recording_id=name,
        channels=0, storage_key=writer.write(name, features),
    )  # fmt: skip
    supervision = SupervisionSegment(name, name, 0.0, duration, text=" ".join(words), custom=custom)
    return MonoCut(name, 0.0, duration, 0, [supervision], features=stored)


def toy_settings(data: ToyData, **changes: str | float | int) -> list[str]:
    """Flags of a tiny model and short training on toy data; `changes` are further settings by dotted name."""
    settings = {
        "model.vocab_size": data.vocab_size,
        "model.encoder.dim": 32,
        "model.encoder.attention_dim": 32,
        "model.encoder.heads": 2,
        "model.encoder.feedforward_dim": 64,
        "model.encoder.layers": 1,
        "model.encoder.kernel": 3,
        "model.streaming.max_chunk": 4,
        "model.streaming.chunk": 2,
        "model.streaming.left_context": 8,
        "model.predictor.embedding_dim": 32,
        "model.predictor.dim": 32,
        "model.predictor.layers": 1,
        "model.joiner.dim": 32,
        "data.folder": str(data.folder),
        "data.batches.max_duration": 6,
        "data.batches.num_buckets": 3,
        "data.batches.num_workers": 0,
        "data.batches.spec_augment.enabled": "false",
        "competitors.count": 3,
        "competitors.max_tokens_per_frame": 2,
        "optimiser.warmup_updates": 10,
        "training.log_interval": 2,
        "training.validation_utterances": 4,
        "training.average_period": 4,
    } | changes
    return [f"--{name}={value}" for name, value in settings.items()]


def parameters_of(checkpoint: Path) -> dict[str, torch.Tensor]:
    """The model in a checkpoint."""
    return torch.load(checkpoint, weights_only=True)["model"]
