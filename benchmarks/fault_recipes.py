"""The commands that are disturbed: prepare.sh, decode.py and run.sh, each on something tiny."""

import json
import re
import shlex
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from fault_commands import Command
from fault_content import checkpoint_content, metrics_content, report_content, without_seconds
from fault_files import ALL_KINDS, DECODING, PREPARATION
from fault_lives import REPOSITORY, Life
from small_corpora import TINY, environment_in, tree_bytes, write_chapter
from toy_data import ToyData, make_toy_data, toy_settings

from transducer_gn.common.units import SAMPLING_RATE
from transducer_gn.config import config_parser, read_config
from transducer_gn.training.distributed import World
from transducer_gn.training.trainer import Trainer

RECIPE = REPOSITORY / "egs" / "librispeech" / "ASR"
STAGE = re.compile(r"stage \d+: [^\n]*\n")
PLACE = re.compile(r" (in|of) /\S*")
# Utterances of a set to decode, and those that make one stage of it.
UTTERANCES, LINES = 60, 10
LOCK, MANIFESTS = ".lock", "manifests/.made.json"
PIECES = 22


def stages_said(life: Life) -> list[str]:
    """The lines with which stages begin, without the places that they name."""
    return [PLACE.sub("", line.strip()) for line in STAGE.findall(life.said())]


def files_of(folder: Path) -> dict[str, Any]:
    """All files but locks; one that was left behind is a difference, too."""
    return {name: content for name, content in tree_bytes(folder).items() if Path(name).name != LOCK}


def prepared_of(folder: Path) -> dict[str, Any]:
    """All files; but the manifests' record tells when the corpus was spoken, of which only the parts are compared."""
    found = files_of(folder)
    record = json.loads(found[MANIFESTS])
    return found | {MANIFESTS: record | {"files": sorted(record["files"])}}


def write_noise(folder: Path) -> Path:
    """A few recordings of noise where MUSAN would be; gives the folder of downloads."""
    (folder / "musan" / "noise").mkdir(parents=True)
    for number in range(4):
        samples = 0.1 * np.random.default_rng(number).standard_normal(12 * SAMPLING_RATE)
        soundfile.write(folder / "musan" / "noise" / f"noise-{number}.wav", samples, SAMPLING_RATE)
    return folder


def prepare_command(work: Path) -> Command:
    """A mini corpus of a few minutes, spoken and prepared."""
    folder = work / "disk" / "prepared"
    environment = environment_in(work / "venv") | {"OMP_NUM_THREADS": "1"}
    speak = [sys.executable, str(REPOSITORY / "local" / "make_mini_corpus.py"), "--corpus-dir", str(folder / "corpus")]
    prepare = [str(REPOSITORY / "prepare.sh"), "--data-dir", str(folder), "--stage", "1", "--vocab-sizes", "60,32"]
    prepare += [
        "--nj",
        "2",
        "--shar",
        "--shard-size",
        "20",
        "--musan",
        "--dl-dir",
        str(write_noise(work / "downloads")),
    ]
    lines = ["echo stage 0: corpus", shlex.join([*speak, *TINY, "--nj", "2"]), shlex.join(prepare)]
    return Command(["bash", "-ec", "\n".join(lines)], environment, folder, stages_said, prepared_of, PREPARATION)


def tens_decoded(life: Life) -> list[str]:
    """How far a decode is: its parts, in tens of utterances."""
    found = ["start"]
    for part in ("dev", "test"):
        lines = UTTERANCES if any(life.folder.glob(f"*_search/results-{part}-*.json")) else -1
        for path in life.folder.glob(f"*_search/.unfinished-{part}-*"):
            with suppress(FileNotFoundError):
                lines = max(lines, path.read_bytes().count(b"\n") - 1)
        found += [f"{part} from utterance {start}" for start in range(0, lines + 1, LINES)]
    return found


def decode_command(work: Path) -> Command:
    """A tiny system, barely trained, and two sets of many short utterances."""
    data = make_toy_data(work / "data", train=24, dev=UTTERANCES, seed=3)
    trained, folder = work / "trained", work / "disk" / "decoded"
    trained.mkdir()
    settings = toy_settings(data, **{"training.memory_scan": "false", "training.epochs": 1})
    # A trainer listens to signals itself, and goes on doing so.
    listener = signal.getsignal(signal.SIGTERM)
    Trainer(read_config(config_parser(None), settings)[0], trained, World()).run()
    signal.signal(signal.SIGTERM, listener)
    words = [sys.executable, str(RECIPE / "decode.py"), "--exp-dir", str(folder), "--beam", "4", "--max-duration", "1"]

    def link(folder: Path) -> None:
        """The folder is removed before every run."""
        for name in ("epoch-1.pt", "best.json"):
            if not (folder / name).exists():
                (folder / name).symlink_to(trained / name)

    environment = environment_in(work / "venv") | {"OMP_NUM_THREADS": "1"}
    return Command(
        words, environment, folder, tens_decoded, files_of, DECODING, ".unfinished-*", has_children=False, before=link
    )


def results_of(folder: Path) -> dict[str, Any]:
    """What run.sh makes, without times: the data and results byte for byte, parameters, metrics but for seconds."""
    data, runs = folder / "data", folder / "exp"
    found = {f"data/{name}": content for name, content in files_of(data).items()}
    for name, content in files_of(runs).items():
        path = runs / name
        # Each call that trains has events of its own, which its process and the time name.
        if path.parent.name == "tensorboard":
            continue
        if path.suffix == ".pt":
            found[name] = checkpoint_content(path)
        elif path.name == "metrics.jsonl":
            found[name] = metrics_content(content.decode())
        elif path.name == "report.txt":
            found[name] = report_content(content.decode())
        elif path.suffix == ".json":
            found[name] = without_seconds(content)
        else:
            # Logs and pages hold times; that they are there is compared.
            found[name] = None
    return found


def run_command(work: Path) -> Command:
    """All of run.sh on a corpus of noise: data, three trainings, decoding, emission times, report."""
    corpus, folder = work / "corpus", work / "disk" / "run"
    for part, speaker, count in (("train-a", 1, 12), ("train-a", 2, 12), ("dev-a", 3, 6), ("test-a", 4, 6)):
        write_chapter(corpus / part / str(speaker) / "7", [f"{speaker}-7-{index:04d}" for index in range(count)])
    changes = {"training.memory_scan": "false", "training.save_interval": 2, "training.log_interval": 1}
    settings = toy_settings(ToyData(folder / "data", PIECES), **changes, **{"data.batches.max_duration": 4})
    for name in ("conf", "global"):
        (work / f"{name}.yaml").write_text("{}\n")
    words = [str(RECIPE / "run.sh"), "--corpus", str(corpus), "--experiments", "near", "--epochs", "2"]
    words += ["--branch-epoch", "1", "--beam", "2", "--jobs", "2", "--latency-utterances", "4"]
    words += ["--data-dir", str(folder / "data"), "--exp-root", str(folder / "exp")]
    words += ["--conf", str(work / "conf.yaml"), "--global-conf", str(work / "global.yaml")]
    words += ["--prepare-flags", f"--vocab-sizes {PIECES} --speed-factors none --nj 2"]
    words += ["--train-flags", " ".join(settings)]
    environment = environment_in(work / "venv") | {"OMP_NUM_THREADS": "1"}
    return Command(words, environment, folder, stages_said, results_of, ALL_KINDS)
