"""Readers of data and of what runs leave behind, as targets of the fuzzer: text, JSON, YAML, audio."""

import gzip
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import soundfile
import yaml
from fuzzing import Target

from transducer_gn.common.command_line import BASE
from transducer_gn.common.stages import made_from
from transducer_gn.config import config_parser, read_config
from transducer_gn.config.experiments import read_experiments
from transducer_gn.data.checks import check_audio
from transducer_gn.data.layout import read_alignments, read_custom, read_part, read_roles
from transducer_gn.data.prepared import PreparedData
from transducer_gn.evaluation import bootstrap
from transducer_gn.evaluation.decoding import Unfinished
from transducer_gn.evaluation.latency_results import read_latency, summary_values
from transducer_gn.evaluation.results import read_results
from transducer_gn.recognition.audio import read_raw_pieces
from transducer_gn.recognition.checkpoint import inherited_epoch_path
from transducer_gn.recognition.front_end import FilterBanks, check_features
from transducer_gn.recognition.samples import file_pieces
from transducer_gn.recognition.system import best_epoch
from transducer_gn.reporting.runs import Run, read_best, read_metrics
from transducer_gn.training.logbook import drop_later_metrics

REPOSITORY = Path(__file__).resolve().parents[1]


def of_file(path: Path, read: Callable[[], object]) -> Callable[[bytes], None]:
    """A reader of bytes from a reader of a file."""

    def reader(content: bytes) -> None:
        path.write_bytes(content)
        read()

    return reader


def cut_json(name: str) -> dict[str, object]:
    """A cut as a manifest holds it."""
    words = [["A", 0.0, 0.4, None], ["WORD", 0.4, 0.5, None]]
    supervision = {"id": name, "recording_id": name, "start": 0.0, "duration": 1.0, "channel": 0, "text": "A WORD",
                   "language": "English", "speaker": "1", "custom": {"kind": "x"},
                   "alignment": {"word": words}}  # fmt: skip
    source = {"type": "file", "channels": [0], "source": "corpus/a.flac"}
    recording = {"id": name, "sources": [source], "sampling_rate": 16000, "num_samples": 16000, "duration": 1.0,
                 "channel_ids": [0]}  # fmt: skip
    features = {"type": "kaldi-fbank", "num_frames": 100, "num_features": 80, "frame_shift": 0.01,
                "sampling_rate": 16000, "start": 0.0, "duration": 1.0, "storage_type": "lilcom_chunky",
                "storage_path": "fbank/0.lca", "storage_key": "0,100", "recording_id": name,
                "channels": 0}  # fmt: skip
    return {"id": name, "start": 0.0, "duration": 1.0, "channel": 0, "supervisions": [supervision],
            "features": features, "recording": recording, "type": "MonoCut"}  # fmt: skip


def lines_of(*values: object) -> bytes:
    """JSON lines."""
    return "".join(json.dumps(value) + "\n" for value in values).encode()


def read_cuts(data: PreparedData) -> None:
    """What training and decoding want of a manifest."""
    data.word_ends("dev")
    for cut in data.cuts("dev"):
        assert cut.duration > 0
        assert isinstance(cut.supervisions[0].text, str)


def manifest_bytes(folder: Path) -> Target:
    """A compressed manifest, whose bytes are changed."""
    (folder / "fbank").mkdir(parents=True)
    data, seed = PreparedData(folder), lines_of(cut_json("a"), cut_json("b"))
    read = of_file(folder / "fbank" / "cuts_dev.jsonl.gz", lambda: read_cuts(data))
    return Target(read, [gzip.compress(seed, mtime=0), gzip.compress(seed, 0, mtime=0)])


def manifest_lines(folder: Path) -> Target:
    """The same, of which the lines are changed and compressed."""
    target = manifest_bytes(folder)
    return Target(lambda content: target.read(gzip.compress(content, 1, mtime=0)),
                  [lines_of(cut_json("a"), cut_json("b"))], is_json=True)  # fmt: skip


def corpus_text(folder: Path) -> Target:
    """Transcripts, alignments and kinds of a corpus; the first byte says which."""
    chapter = folder / "dev" / "1" / "2"
    chapter.mkdir(parents=True)
    names = [chapter / f"1-2.{kind}" for kind in ("trans.txt", "alignment.txt", "kinds.jsonl")]
    (chapter / "1-2-3.flac").write_bytes(b"")

    def read(content: bytes) -> None:
        for path in names:
            path.unlink(missing_ok=True)
        path = names[content[0] % 3 if content else 0]
        path.write_bytes(content[1:])
        read_alignments(names[1])
        read_custom(names[2])
        read_part(folder, "dev")

    seeds = [b"\x00" + b"1-2-3 A WORD\n1-2-4 B\n", b'\x01' + b'1-2-3 ",A,,WORD," "0.1,0.2,0.3,0.4,0.5"\n',
             b"\x02" + lines_of({"id": "1-2-3", "kind": "x", "span": [0.1, 0.2]})]  # fmt: skip
    return Target(read, seeds, words=[b"1-2-3", b'"', b",", b"\xe2\x80\xa8", b'"id"'])


def parts(folder: Path) -> Target:
    """parts.json."""
    folder.mkdir(parents=True)

    def read() -> None:
        roles = read_roles(folder)
        assert all(isinstance(part, str) for role in ("train", "dev", "test") for part in roles[role])

    return Target(of_file(folder / "parts.json", read),
                  [b'{"train": ["train"], "dev": ["dev"], "test": []}'], is_json=True)  # fmt: skip


@dataclass(frozen=True)
class Named:
    """A front end of which nothing is there but what its record says."""

    record: dict[str, object]

    def fingerprint(self) -> dict[str, object]:
        """All that the features depend on."""
        return self.record


def front_end_record(folder: Path) -> Target:
    """front_end.json, for a system with filter banks and for one with a pretrained front end."""
    folder.mkdir(parents=True)
    data = PreparedData(folder)
    moonshine = {"front_end": "moonshine-tiny", "weights": "ab" * 32, "layers": [1, 2], "chunk": 320, "right": None}
    front_ends = [FilterBanks(), Named(moonshine)]

    def read() -> None:
        # Most records are those of neither.
        kind = data.front_end().get("front_end")
        check_features(data, front_ends[kind == "moonshine-tiny"])  # type: ignore[arg-type]

    seeds = [as_json(front_end.fingerprint()) for front_end in front_ends]  # type: ignore[attr-defined]
    return Target(of_file(folder / "front_end.json", read), seeds, is_json=True)


def copies(folder: Path, to: Path) -> list[bytes]:
    """The YAML files of a folder, copied to another."""
    files = sorted(folder.glob("*.yaml"))
    for file in files:
        (to / file.name).write_bytes(file.read_bytes())
    return [file.read_bytes() for file in files]


def as_json(values: object) -> bytes:
    """What YAML holds as JSON, which is YAML, too, and can be changed value by value."""
    return json.dumps(values).encode()


def settings(folder: Path) -> Target:
    """A YAML file of settings; some files have a flag on top."""
    folder.mkdir(parents=True)
    parser, path = config_parser(None), folder / "settings.yaml"
    # No input changes them, and finding them takes four fifths of the time.
    defaults = parser.get_defaults(skip_validation=True)
    parser.get_defaults = lambda **how: defaults.clone()  # type: ignore[method-assign]
    # The bases that they name are there.
    texts = copies(REPOSITORY / "conf", folder)
    whole = [yaml.safe_load(BASE.sub("", text.decode())) for text in texts]
    seeds = [*texts, *map(as_json, whole)]
    words = [b"base: settings.yaml\n", b"model:\n", b"  encoder:\n", b"    dim: 8\n", b"&a", b"*a", b"<<: ",
             b"!!python/",
             b"- ", b"null", b"~", b"? ", b"|\n", b"alpha: 0.5"]  # fmt: skip

    def read(content: bytes) -> None:
        path.write_bytes(content)
        flags = ["--model.encoder.layers", "3"] if len(content) % 3 == 0 else []
        read_config(parser, ["--config", str(path), *flags])

    return Target(read, seeds, is_json=True, words=words)


def experiments(folder: Path) -> Target:
    """A YAML file of experiments."""
    (folder / "experiments").mkdir(parents=True)
    # The settings and bases that they name are there.
    copies(REPOSITORY / "conf", folder)
    texts = copies(REPOSITORY / "conf" / "experiments", folder / "experiments")
    path = folder / "experiments" / "changed.yaml"
    words = [b"base: changed.yaml\n", b"&a ", b"*a", b"{count}", b"{epochs.x}", b"{0}", b"after: 3", b"alone: true"]
    seeds = [*texts, *(as_json(yaml.safe_load(text)) for text in texts)]
    return Target(of_file(path, lambda: read_experiments(path)), seeds, is_json=True, words=words)


AUDIO_KINDS = [("WAV", "PCM_16"), ("WAV", "FLOAT"), ("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("AIFF", "PCM_16"),
               ("NIST", "PCM_16"), ("MP3", "MPEG_LAYER_III")]  # fmt: skip


def audio_bytes(kind: str, subtype: str) -> bytes:
    """A short recording in a format."""
    buffer = io.BytesIO()
    samples = 0.1 * np.sin(np.arange(800) / 5)
    soundfile.write(buffer, samples, 16000, format=kind, subtype=subtype)
    return buffer.getvalue()


def audio(folder: Path) -> Target:
    """Recordings in several formats."""
    folder.mkdir(parents=True)
    path = folder / "audio.flac"

    def read() -> None:
        check_audio(path)
        for piece in file_pieces(path, 16000, 1000):
            assert np.isfinite(piece).all()

    return Target(of_file(path, read), [audio_bytes(*kind) for kind in AUDIO_KINDS])


def raw_audio(folder: Path) -> Target:
    """Samples on standard input."""

    def read(content: bytes) -> None:
        for piece in read_raw_pieces(io.BytesIO(content), 100):
            assert piece.abs().max() <= 1

    return Target(read, [bytes(range(200))])


METRICS = lines_of({"kind": "train", "step": 1, "epoch": 0.5, "alpha": 1.0, "loss": 0.5, "seconds_search": 1.0},
                   {"kind": "valid", "step": 2, "epoch": 1.0, "wer": 50.0})  # fmt: skip


def metrics(folder: Path) -> Target:
    """metrics.jsonl, for the report and for a run that goes on."""
    folder.mkdir(parents=True)
    path = folder / "metrics.jsonl"

    def read() -> None:
        rows = read_metrics(path, [])
        run = Run("a", folder, train=[row for row in rows if row["kind"] == "train"])
        assert run.epochs >= 0
        run.seconds_per_epoch()
        drop_later_metrics(path, 1)
        assert all(row["step"] <= 1 for row in read_metrics(path, []))

    return Target(of_file(path, read), [METRICS], is_json=True)


def best(folder: Path) -> Target:
    """best.json."""
    folder.mkdir(parents=True)
    path = folder / "best.json"

    def read() -> None:
        found = read_best(path, [])
        Run("a", folder, best=found).epochs  # noqa: B018 (computed)
        assert best_epoch(folder) >= 1

    return Target(of_file(path, read), [b'{"epoch": 3, "wer": 5.5, "last_epoch": 4}'], is_json=True)


def branch(folder: Path) -> Target:
    """branch.json."""
    (folder / "local").mkdir(parents=True)
    (folder / "local" / "epoch-1.pt").write_bytes(b"")
    path = folder / "run" / "branch.json"
    path.parent.mkdir()
    seeds = [b'{"from": "../local/epoch-1.pt"}', b'{"from": "branch.json"}']
    return Target(of_file(path, lambda: inherited_epoch_path(path.parent, 1)), seeds, is_json=True)


def results(folder: Path) -> Target:
    """Results of decoding and of latency, and a decoding that was cut short."""
    folder.mkdir(parents=True)
    path = folder / "results-a.json"
    utterance = {"id": "a", "reference": ["A"], "hypothesis": ["B"], "group": "x", "unit": "a", "custom": {}}
    old = {"id": "a", "reference": ["A"], "hypothesis": ["B"], "kind": "x", "twin": "b"}
    content = {"part": "test", "system": "epoch-1", "identity": {"beam": 4}, "utterances": [utterance, old]}

    def read() -> None:
        read_results(path).measures()

    return Target(of_file(path, read), [json.dumps(content).encode()], is_json=True)


def latency(folder: Path) -> Target:
    """Results of compute_latency.py."""
    folder.mkdir(parents=True)
    path = folder / "latency-a.json"
    utterance = {"id": "a", "group": "x", "tokens": ["A", "B"], "emitted": [0.4, None], "shown": [0.5],
                 "settled": [None], "custom": {}, "text": ["A"], "ends": [0.4], "duration": 1.0,
                 "history": [{"seconds": 0.5, "words": ["A"], "stable": 1, "computed": 0.1}]}  # fmt: skip
    content = {"part": "test", "system": "epoch-1", "identity": {"beam": 4}, "utterances": [utterance]}

    def read() -> None:
        # What pages show of it, with narrower intervals than they want, which take most of the time.
        with patch.multiple(bootstrap, REPLICATIONS=20, QUANTILE_REPLICATIONS=20):
            summary_values(read_latency(path))

    return Target(of_file(path, read), [json.dumps(content).encode()], is_json=True)


def unfinished(folder: Path) -> Target:
    """A decoding that was cut short."""
    folder.mkdir(parents=True)
    path, identity = folder / "unfinished.jsonl", {"beam": 4}
    utterance = {"id": "a", "reference": ["A"], "hypothesis": ["B"], "group": "x", "unit": "a", "custom": {}}

    def read() -> None:
        found = Unfinished(path, identity).read()
        assert all(isinstance(item.id, str) for item in found)
        made_from(path, identity)

    return Target(of_file(path, read), [lines_of(identity, utterance)], is_json=True)


TARGETS: dict[str, Callable[[Path], Target]] = {
    "manifest-bytes": manifest_bytes,
    "manifest-lines": manifest_lines,
    "corpus-text": corpus_text,
    "parts": parts,
    "front-end-record": front_end_record,
    "settings": settings,
    "experiments": experiments,
    "audio": audio,
    "raw-audio": raw_audio,
    "metrics": metrics,
    "best": best,
    "branch": branch,
    "results": results,
    "latency": latency,
    "unfinished": unfinished,
}
