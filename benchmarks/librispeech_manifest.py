"""A training manifest of LibriSpeech's size without its audio: published numbers of utterances, lengths and words.

Everything is drawn from one seed. Features are faked where they are read: a cut names as many frames as it has, and the
reader makes them up, so that nothing but the manifest lies on disk. A Shar export of it has no tar files either.
"""

import json
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from lhotse import CutSet, Features, MonoCut, Recording, SupervisionSegment
from lhotse.audio import AudioSource
from lhotse.features.io import FeaturesReader, register_reader
from lhotse.utils import compute_num_frames

from transducer_gn.common.files import write_text
from transducer_gn.common.framing import FILTER_BANKS
from transducer_gn.common.units import SAMPLING_RATE
from transducer_gn.data.cuts import FEATURE_PLACES
from transducer_gn.data.features import CUTS_PER_SHARD
from transducer_gn.data.index import DURATIONS, write_array
from transducer_gn.data.manifest_files import read_lines, write_lines
from transducer_gn.data.shar import FORMAT, INDEX, SharExport
from transducer_gn.data.tokenizer import Tokenizer, save_tokenizer, train_tokenizer

UTTERANCES = 281241
SPEEDS = ("", "_sp0.9", "_sp1.1")
# Cuts of each training part at three speeds, and quantiles of their durations in seconds, as icefall's
# local/display_manifest_statistics.py gives them.
SHARES = (0.0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 1.0)
PARTS = {
    "train-clean-100": (85617, (1.3, 1.9, 2.2, 2.5, 4.2, 6.4, 11.4, 13.8, 15.3, 16.7, 17.3, 18.1, 18.4, 18.8, 27.2)),
    "train-clean-360": (312042, (1.0, 1.8, 2.2, 2.5, 4.2, 6.2, 11.2, 13.7, 15.3, 16.6, 17.3, 18.1, 18.4, 18.8, 33.0)),
    "train-other-500": (446064, (0.8, 1.7, 2.1, 2.3, 3.5, 5.0, 9.8, 13.4, 15.1, 16.5, 17.2, 18.1, 18.4, 18.9, 31.0)),
}
PUBLISHED_HOURS = 2902.6
# The 960 hours hold 9.4 million words.
WORDS_PER_SECOND = 2.72
WORDS = 20000
VOCAB_SIZE = 500


@register_reader
class FakedReader(FeaturesReader):
    """Gives as many frames of silence as the key says."""

    name = "faked"

    def __init__(self, storage_path: str, *_: Any, **__: Any) -> None:
        self.storage_path = storage_path

    def read(self, key: str, left_offset_frames: int = 0, right_offset_frames: int | None = None) -> np.ndarray:
        """Return zeros [T', 80]."""
        frames = int(key) if right_offset_frames is None else right_offset_frames
        return np.zeros((frames - left_offset_frames, FILTER_BANKS.feature_dim), dtype=np.float32)


FEATURE_PLACES.add(FakedReader.name)


def vocabulary(draw: random.Random) -> tuple[list[str], list[float]]:
    """Return made-up words, the frequent ones short, and their cumulative weights by Zipf's law."""
    letters, frequencies = "ETAOINSHRDLCUMWFGYPBVK", [12, 9, 8, 8, 7, 7, 6, 6, 6, 4, 4, 3, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1]
    words = ["".join(draw.choices(letters, frequencies, k=2 + rank.bit_length() // 2)) for rank in range(WORDS)]
    return words, np.cumsum([1 / (rank + 2) for rank in range(WORDS)]).tolist()


def durations(cuts: int, seed: int) -> list[tuple[str, float]]:
    """Return part and seconds of so many cuts, from the parts in proportion, in random order, whole samples long."""
    generator, drawn = np.random.default_rng(seed), []
    total = sum(count for count, _ in PARTS.values())
    for part, (count, quantiles) in PARTS.items():
        seconds = np.interp(generator.random(round(cuts * count / total)), SHARES, quantiles)
        drawn += [(part, round(float(value) * SAMPLING_RATE) / SAMPLING_RATE) for value in seconds]
    random.Random(seed).shuffle(drawn)
    return drawn


def make_cut(number: int, part: str, seconds: float, text: str) -> MonoCut:
    """Return a cut as prepare.sh makes them, features included."""
    speaker, speed = 1000 + number % 2338, SPEEDS[number % len(SPEEDS)]
    chapter = f"{speaker}-{100000 + number // 200}"
    name = f"{chapter}-{number:07d}{speed}"
    frames = compute_num_frames(seconds, FILTER_BANKS.feature_shift, SAMPLING_RATE)
    source = AudioSource("file", [0], f"corpus/{part}/{speaker}/{chapter}/{name}.flac")
    transforms = [{"name": "Speed", "kwargs": {"factor": float(speed[3:])}}] if speed else None
    samples = round(seconds * SAMPLING_RATE)
    recording = Recording(name, [source], SAMPLING_RATE, samples, seconds, [0], transforms)
    supervision = SupervisionSegment(name, name, 0.0, seconds, text=text, language="English", speaker=str(speaker))
    features = Features(
        type="kaldi-fbank",
        num_frames=frames,
        num_features=FILTER_BANKS.feature_dim,
        frame_shift=FILTER_BANKS.feature_shift,
        sampling_rate=SAMPLING_RATE,
        start=0.0,
        duration=seconds,
        storage_type=FakedReader.name,
        storage_path=f"fbank/{part}/{number // CUTS_PER_SHARD:05d}.lca",
        storage_key=str(frames),
        recording_id=name,
        channels=0,
    )
    return MonoCut(name, 0.0, seconds, 0, [supervision], features, recording)


def make_cuts(cuts: int, seed: int) -> Iterator[MonoCut]:
    """Yield the cuts of the manifest."""
    draw = random.Random(seed)
    words, weights = vocabulary(draw)
    for number, (part, seconds) in enumerate(durations(cuts, seed)):
        spoken = draw.choices(words, cum_weights=weights, k=max(1, round(seconds * WORDS_PER_SECOND)))
        yield make_cut(number, part, seconds, " ".join(spoken))


def make_prepared_folder(folder: Path, cuts: int, seed: int = 0) -> None:
    """Write what training reads of a prepared folder: the training manifest, and a token model of 500."""
    write_lines(folder / "cuts_train.jsonl.gz", (json.dumps(cut.to_dict()).encode() for cut in make_cuts(cuts, seed)))
    save_tokenizer(made_tokenizer(seed), folder / f"lang_unigram_{VOCAB_SIZE}")


def number_of(name: str) -> int:
    """Return the place in the manifest of the utterance of a name."""
    found = re.search(r"-([0-9]{7})(_|$)", name)
    assert found, name
    return int(found[1])


def make_shar_export(folder: Path, shard_size: int) -> None:
    """Write what training reads of a Shar export of the folder's manifest, but for the tar files of features."""
    export, seconds, shards = folder / "shar" / "train", [], []
    export.mkdir(parents=True, exist_ok=True)
    lines = read_lines(folder / "cuts_train.jsonl.gz")
    while shard := list(islice(lines, shard_size)):
        write_lines(export / f"cuts.{len(shards):06d}.jsonl.gz", shard)
        seconds += [json.loads(line)["duration"] for line in shard]
        shards.append(len(shard))
    write_array(export / DURATIONS, seconds, np.float64)
    write_text(export / INDEX, json.dumps({"format": FORMAT, "shards": shards, "fingerprint": "made up"}) + "\n")


def faked_shards() -> AbstractContextManager[object]:
    """While this lasts, shards are read without their tar files: cuts make their features up."""

    def cuts_alone(self: SharExport, number: int) -> CutSet:
        return CutSet.from_jsonl_lazy(self.folder / f"cuts.{number:06d}.jsonl.gz")

    return mock.patch.object(SharExport, "_shard", cuts_alone)


def made_tokenizer(seed: int, lines: int = 1000) -> Tokenizer:
    """Return a token model of some text of the manifest."""
    texts: Sequence[str] = [cut.supervisions[0].text for cut in make_cuts(lines, seed)]
    return train_tokenizer(texts, VOCAB_SIZE)
