#!/usr/bin/env python3
"""How fast data comes: features and batches in multiples of real time on one core, against named alternatives.

Ratios:
    fbank_over_kaldi_native     our filter banks over kaldi-native-fbank, from samples in memory
    batches_over_flac_reading   training batches (stored features, SpecAugment, tokens) over merely decoding the FLACs
    batches_over_training       training batches over local training of the mini model on them; below 20 data would
                                get in the way
"""

import argparse
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import kaldi_native_fbank
import numpy as np
import soundfile
import torch
from lhotse.cut import Cut
from measure import median_seconds, write_result

from transducer_gn.config import BatchConfig, MiniCorpusConfig, StorageConfig, config_parser, read_config
from transducer_gn.data.batches import Batch, Batches
from transducer_gn.data.features import cuts_of_part, fbank, store_features
from transducer_gn.data.manifests import make_manifests
from transducer_gn.data.prepared import PreparedData
from transducer_gn.data.tokenizer import Tokenizer, train_tokenizer
from transducer_gn.model.chunk import evaluation_chunk
from transducer_gn.model.transducer import build_model
from transducer_gn.synthetic.mini_corpus import make_mini_corpus
from transducer_gn.training.clock import Clock
from transducer_gn.training.optimiser import build_optimiser
from transducer_gn.training.schedule import SchedulePoint
from transducer_gn.training.training_pass import Plan, TrainingPass

PART = "train-mini"
MINI_CONFIG = Path(__file__).parents[1] / "conf" / "mini.yaml"
VOCAB_SIZE = 200
REPEATS = 3
TRAINING_BATCHES = 4


def times_real_time(work: Callable[[], object], seconds: float) -> float:
    """Return how many seconds of audio `work` gets through in a second: the median of a few runs after a first one."""
    return seconds / median_seconds(work, REPEATS)


def make_data(folder: Path, sentences: int) -> tuple[PreparedData, Tokenizer]:
    """Make a small mini corpus with features and a token model."""
    make_mini_corpus(folder / "corpus", MiniCorpusConfig(train=sentences, dev=1, test=1), jobs=2)
    (folder / "manifests").mkdir()
    roles = {"train": [PART], "dev": [], "test": []}
    kept = make_manifests(folder / "corpus", roles, folder, jobs=2, skip_bad=False)
    store_features(cuts_of_part(folder, PART), PART, {}, folder, StorageConfig(), jobs=2)
    return PreparedData(folder), train_tokenizer([utterance.text for utterance, _ in kept[PART]], VOCAB_SIZE)


def kaldi_features(samples: list[np.ndarray]) -> None:
    """Compute filter banks with kaldi-native-fbank alone."""
    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.dither = 0
    options.frame_opts.snip_edges = False
    options.mel_opts.num_bins = 80
    options.mel_opts.high_freq = -400
    for signal in samples:
        computer = kaldi_native_fbank.OnlineFbank(options)
        computer.accept_waveform(16000, signal)
        computer.input_finished()
        np.stack([computer.get_frame(index) for index in range(computer.num_frames_ready)])


def our_features(samples: list[np.ndarray]) -> None:
    """Compute filter banks as prepare.sh does."""
    extractor = fbank()
    for signal in samples:
        extractor.extract(signal, 16000)


def read_audio(cuts: Iterable[Cut]) -> list[np.ndarray]:
    """Decode the FLAC files of cuts."""
    return [soundfile.read(cut.recording.sources[0].source, dtype="float32")[0] for cut in cuts]


def mini_model_step() -> Callable[[Batch], None]:
    """Return a function that makes one local update of the mini model, the fastest training there is."""
    config, _ = read_config(config_parser("benchmark"), [f"--config={MINI_CONFIG}", f"--model.vocab_size={VOCAB_SIZE}"])
    training_pass = TrainingPass(build_model(config.model), config).train()
    optimiser = build_optimiser(config.optimiser, training_pass.parameters())
    chunk = evaluation_chunk(config.model.streaming)
    clock = Clock(torch.device("cpu"))

    def step(batch: Batch) -> None:
        optimiser.zero_grad()
        training_pass(Plan(batch, chunk, None, seed=0), SchedulePoint(1.0, 0.0), 1.0, clock).loss.backward()
        optimiser.step()

    return step


def measure(data: PreparedData, tokenizer: Tokenizer, step: Callable[[Batch], None]) -> dict[str, float]:
    """Return all speeds in multiples of real time on one core; `step` makes one training update."""
    cuts = list(data.cuts(PART))
    seconds = sum(cut.duration for cut in cuts)
    samples = read_audio(cuts)
    settings = BatchConfig(max_duration=100, num_workers=0)
    stored, fresh = (
        Batches(data.cuts(PART), tokenizer, replace(settings, on_the_fly=on_the_fly), training=True)
        for on_the_fly in (False, True)
    )
    few = list(stored)[:TRAINING_BATCHES]
    trained_seconds = sum(float(batch.durations.sum()) for batch in few)
    return {
        "kaldi_native_fbank": times_real_time(lambda: kaldi_features(samples), seconds),
        "fbank": times_real_time(lambda: our_features(samples), seconds),
        "flac_reading": times_real_time(lambda: read_audio(cuts), seconds),
        "batches_from_stored_features": times_real_time(lambda: list(stored), seconds),
        "batches_from_audio": times_real_time(lambda: list(fresh), seconds),
        "training": times_real_time(lambda: [step(batch) for batch in few], trained_seconds),
    }


def main() -> None:
    """Measure, print, and write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="write ratios and speeds to this file")
    parser.add_argument("--sentences", type=int, default=600, help="size of the corpus that is made for it")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        speeds = measure(*make_data(Path(folder), arguments.sentences), mini_model_step())
    ratios = {
        "fbank_over_kaldi_native": speeds["fbank"] / speeds["kaldi_native_fbank"],
        "batches_over_flac_reading": speeds["batches_from_stored_features"] / speeds["flac_reading"],
        "batches_over_training": speeds["batches_from_stored_features"] / speeds["training"],
    }
    for name, value in speeds.items():
        print(f"{name:32s} {value:8.0f} x real time on one core")
    for name, value in ratios.items():
        print(f"{name:32s} {value:8.2f}")
    write_result(arguments.json, {"ratios": ratios, "times_real_time": speeds})


if __name__ == "__main__":
    main()
