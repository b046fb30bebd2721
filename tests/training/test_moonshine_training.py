"""Invariant: on a pretrained front end, features that were stored are those that recognition computes from audio.

Frozen or trained along, a stopped run ends where an undisturbed one does; its checkpoint is all that recognition needs.
"""

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from moonshine_data import PIECES, prepare, write_conf, write_corpus, write_front_end
from small_moonshine import PUBLISHED_FILE, needs_published_file
from small_systems import moonshine_model, moonshine_model_config
from stopping import run_until

import transducer_gn
from transducer_gn.commands import compute_features, compute_latency, decode, report
from transducer_gn.common.errors import UserError
from transducer_gn.config import (
    BatchConfig,
    FrontEndConfig,
    RecognitionConfig,
    SystemConfig,
    config_parser,
    read_config,
)
from transducer_gn.data.batches import Batches, Inputs
from transducer_gn.data.features import change_speed
from transducer_gn.data.prepared import PreparedData
from transducer_gn.evaluation.results import find_results, read_results
from transducer_gn.recognition.checkpoint import load_checkpoint
from transducer_gn.recognition.stored_front_end import FrontEndExtractor
from transducer_gn.training.distributed import World
from transducer_gn.training.trainer import Trainer

SETTINGS = {
    "model.vocab_size": PIECES,
    "model.encoder.dim": 16,
    "model.encoder.attention_dim": 16,
    "model.encoder.heads": 2,
    "model.encoder.feedforward_dim": 24,
    "model.encoder.layers": 1,
    "model.encoder.kernel": 3,
    "model.streaming.chunk": 4,
    "model.streaming.left_context": 8,
    "model.predictor.embedding_dim": 8,
    "model.predictor.dim": 12,
    "model.predictor.layers": 1,
    "model.joiner.dim": 16,
    "data.batches.max_duration": 8,
    "data.batches.num_buckets": 2,
    "data.batches.num_workers": 0,
    "optimiser.warmup_updates": 10,
    "optimiser.initial_lr": 0.02,
    "training.log_interval": 2,
    "training.average_period": 2,
    "training.epochs": 2,
}
UNFROZEN = {"model.front_end.freeze": "false", "optimiser.front_end_lr": 0.001}
AT_SPEEDS = UNFROZEN | {"data.batches.speeds": "[0.9,1,1.1]"}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with a corpus, its data, and the settings of the front end."""
    folder = tmp_path_factory.mktemp("moonshine")
    write_corpus(folder / "corpus")
    conf, file = write_conf(folder / "conf.yaml"), write_front_end(folder / "front-end")
    prepare(folder / "corpus", folder / "data", file, conf, speeds="[1.1]")
    return folder


@pytest.fixture(scope="module")
def train(place: Path):
    """A function that trains in this process; `stop_after` requests a stop at that update."""

    def run(folder: Path, stop_after: int | None = None, branch_from: Path | None = None, **changes: object) -> Trainer:
        flags = [f"--{name}={value}" for name, value in (SETTINGS | changes).items()]
        data = [] if "data.folder" in changes else [f"--data.folder={place / 'data'}"]
        config, _ = read_config(config_parser("test"), [f"--config={place / 'conf.yaml'}", *data, *flags])
        folder.mkdir(exist_ok=True, parents=True)
        return run_until(Trainer(config, folder, World(), branch_from), stop_after)

    return run


@pytest.fixture(scope="module")
def frozen(train, place: Path) -> Path:
    """The folder of a frozen run."""
    train(place / "exp" / "frozen")
    return place / "exp" / "frozen"


def audio_of(cut: object) -> torch.Tensor:
    return torch.from_numpy(soundfile.read(cut.recording.sources[0].source, dtype="float32")[0])


def test_stored_features_are_those_of_recognition(frozen: Path, place: Path) -> None:
    system = transducer_gn.load(frozen)
    cuts = list(PreparedData(place / "data").cuts("dev-a"))
    for cut in cuts:
        vectors = system.front_end.compute(audio_of(cut))
        assert len(vectors) == cut.num_frames
        # Rounded to multiples of 1/32 when they were stored.
        torch.testing.assert_close(torch.from_numpy(cut.load_features()), vectors, rtol=0, atol=1 / 32)
    train_ids = {cut.id for cut in PreparedData(place / "data").train_cuts()}
    assert len(train_ids) == 16 and sum("_sp1.1" in name for name in train_ids) == 8


def test_decoding_says_the_same_chunk_by_chunk(frozen: Path, place: Path) -> None:
    for streaming in ("simulated", "chunks"):
        decode.main(["--exp-dir", str(frozen), "--beam", "4", "--streaming", streaming])
    found = [read_results(path) for path in (frozen / "beam_search").glob("results-*.json")]
    assert len(found) == 2
    texts = [[utterance.hypothesis for utterance in results.utterances] for results in found]
    assert texts[0] == texts[1]
    compute_latency.main(["--exp-dir", str(frozen), "--beam", "4", "--display", "true"])
    report.main(["--exp-root", str(frozen.parent), "--data-dir", str(place / "data")])
    assert (frozen.parent / "report" / "report.html").is_file()
    assert "dev-a" in find_results(frozen)


def test_a_checkpoint_is_all_that_recognition_needs(frozen: Path, place: Path, tmp_path: Path) -> None:
    system, (cut, *_) = transducer_gn.load(frozen), PreparedData(place / "data").cuts("dev-a")
    alone = tmp_path / "epoch-2.pt"
    alone.write_bytes((frozen / "epoch-2.pt").read_bytes())
    again = transducer_gn.load(alone)
    assert again.front_end.fingerprint() == system.front_end.fingerprint()
    assert again.transcribe(audio_of(cut)) == transducer_gn.load(frozen / "epoch-2.pt").transcribe(audio_of(cut))


def test_nothing_frozen_moves_or_is_averaged(frozen: Path, place: Path) -> None:
    before = torch.load(place / "data" / "front_end.pt", weights_only=True)
    checkpoint = load_checkpoint(frozen / "epoch-2.pt")
    for name, value in before.items():
        assert torch.equal(checkpoint.model[f"front_end.{name}"], value)
    assert not any(name.startswith("front_end.") for name in checkpoint.average["parameters"])
    assert len(checkpoint.training.optimiser["param_groups"]) == 1


@pytest.mark.parametrize("changes", [{}, UNFROZEN, AT_SPEEDS], ids=["frozen", "unfrozen", "speeds"])
def test_resume_equals_never_having_stopped(train, changes: dict[str, object], tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", **changes)
    steps = whole.state.progress.step
    stopped = train(tmp_path / "parts", stop_after=steps // 2 + 1, **changes)
    assert 0 < stopped.state.progress.step < steps and stopped.state.progress.batch > 0
    train(tmp_path / "parts", **changes)
    one, other = (load_checkpoint(tmp_path / name / "epoch-2.pt") for name in ("whole", "parts"))
    for name, value in one.model.items():
        assert torch.equal(value, other.model[name]), name


def test_a_branch_may_unfreeze(train, frozen: Path, place: Path, tmp_path: Path) -> None:
    train(tmp_path / "exp", branch_from=frozen / "epoch-2.pt", **UNFROZEN | {"training.epochs": 3})
    before, after = load_checkpoint(frozen / "epoch-2.pt"), load_checkpoint(tmp_path / "exp" / "epoch-3.pt")
    moved = {name for name, value in before.model.items() if not torch.equal(value, after.model[name])}
    of_encoder = {name for name in moved if name.startswith("front_end.")}
    assert of_encoder and all(name.startswith("front_end.encoder.layers.") for name in of_encoder)
    own, pretrained = after.training.optimiser["param_groups"]
    assert (own["initial_lr"], pretrained["initial_lr"], pretrained["weight_decay"]) == (0.02, 0.001, 0)
    # What was frozen until then is in the average as it was.
    distance = {
        name: (after.average["parameters"][name] - before.model[name]).abs().max()
        for name in moved
        if name.startswith("front_end.")
    }
    assert max(distance.values()) < 0.05
    averaged = transducer_gn.load(tmp_path / "exp", choice=SystemConfig(epoch=3, avg=1)).model.state_dict()
    name, counts = min(distance), [each.average["count"] for each in (before, after)]
    total = counts[1] * after.average["parameters"][name] - counts[0] * before.model[name]
    torch.testing.assert_close(averaged[name], total / (counts[1] - counts[0]))
    assert not torch.equal(averaged[name], after.model[name])
    system = transducer_gn.load(tmp_path / "exp")
    texts = {streaming: decoded(tmp_path / "exp", streaming) for streaming in ("simulated", "chunks")}
    assert texts["simulated"] == texts["chunks"]
    cuts = {cut.id: cut for cut in PreparedData(place / "data").cuts("dev-a")}
    for name, text in texts["chunks"].items():
        assert system.transcribe(audio_of(cuts[name]), RecognitionConfig(beam=4)).text.split() == text


def test_training_along_needs_no_stored_features(train, place: Path, tmp_path: Path) -> None:
    data, front_end = tmp_path / "data", place / "front-end" / "front_end.pt"
    prepare(place / "corpus", data, front_end, write_conf(tmp_path / "c.yaml", freeze=False), speeds="[1.1]")
    assert not list(data.rglob("*.lca")) and not any(cut.has_features for cut in PreparedData(data).train_cuts())
    train(tmp_path / "exp", **UNFROZEN | {"data.folder": data, "training.epochs": 1})
    train(tmp_path / "stored", **UNFROZEN | {"training.epochs": 1})
    one, other = (load_checkpoint(tmp_path / name / "epoch-1.pt").model for name in ("exp", "stored"))
    assert all(torch.equal(value, other[name]) for name, value in one.items())
    assert len(decoded(tmp_path / "exp", "simulated")) == 4
    with pytest.raises(UserError, match="has no stored features: .*freeze: false.*in a data folder of its own"):
        train(tmp_path / "frozen", **{"data.folder": data})
    # The same folder, with features: what the front end was fitted to stays.
    prepare(place / "corpus", data, front_end, place / "conf.yaml", speeds="[1.1]")
    assert all(cut.has_features for cut in PreparedData(data).train_cuts())


def test_speeds_are_drawn_anew_in_every_epoch(place: Path) -> None:
    data = PreparedData(place / "data")
    cuts = {cut.id: cut for cut in data.train_cuts()}
    settings = BatchConfig(max_duration=8, num_buckets=2, num_workers=0, speeds=(0.9, 1, 1.1))
    inputs = Inputs.of(FrontEndConfig("moonshine-tiny", freeze=False))
    batches = Batches(data.train_cuts(), data.tokenizer(PIECES), settings, training=True, inputs=inputs)
    seen: dict[str, set[float]] = {name: set() for name in cuts}
    for epoch in range(6):
        for batch in batches.starting_at(epoch):
            for name, samples, length in zip(batch.ids, batch.features, batch.feature_lengths, strict=True):
                heard = {
                    speed: change_speed(cuts[name], speed) if speed != 1 else cuts[name] for speed in (0.9, 1, 1.1)
                }
                speed = min(heard, key=lambda each: abs(heard[each].num_samples - int(length)))
                assert np.array_equal(samples[:length].numpy(), heard[speed].load_audio()[0])
                seen[name].add(speed)
    assert set().union(*seen.values()) == {0.9, 1, 1.1}
    assert all(len(speeds) > 1 for speeds in seen.values())


def test_speeds_are_for_audio(train, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"data.batches.speeds: needs a front end that is trained along.*--speed-factors"
    ):
        train(tmp_path / "exp", **{"data.batches.speeds": "[0.9,1.1]"})
    with pytest.raises(UserError, match=r"data.batches.speeds: must be from 0.5 to 2, not 9"):
        train(tmp_path / "exp", **AT_SPEEDS | {"data.batches.speeds": "[9]"})


def test_a_branch_may_freeze_what_was_trained(train, frozen: Path, place: Path, tmp_path: Path) -> None:
    unfrozen, back = tmp_path / "unfrozen" / "epoch-3.pt", {"training.epochs": 4}
    train(unfrozen.parent, branch_from=frozen / "epoch-2.pt", **UNFROZEN | {"training.epochs": 3})
    with pytest.raises(UserError, match="weights is .*--front-end-file takes .*or its checkpoint"):
        train(tmp_path / "refused", branch_from=unfrozen, **back)
    data = tmp_path / "data"
    prepare(place / "corpus", data, unfrozen, place / "conf.yaml", speeds="[1.1]")
    train(tmp_path / "exp", branch_from=unfrozen, **back | {"data.folder": data})
    before, after = load_checkpoint(unfrozen), load_checkpoint(tmp_path / "exp" / "epoch-4.pt")
    for name, value in before.model.items():
        assert torch.equal(value, after.model[name]) == name.startswith("front_end."), name
    assert not any(name.startswith("front_end.") for name in after.average["parameters"])
    # Moments of the other parameters are gone on with: as many steps as were made in all.
    assert {values["step"] for values in after.training.optimiser["state"].values()} == {after.progress.step}
    assert len(after.training.optimiser["param_groups"]) == 1
    system = transducer_gn.load(tmp_path / "exp")
    (cut, *_) = PreparedData(data).cuts("dev-a")
    vectors = system.front_end.compute(audio_of(cut))
    torch.testing.assert_close(torch.from_numpy(cut.load_features()), vectors, rtol=0, atol=1 / 32)


def decoded(folder: Path, streaming: str) -> dict[str, list[str]]:
    """The words of each utterance of the dev set."""
    decode.main(["--exp-dir", str(folder), "--beam", "4", "--streaming", streaming])
    newest = max((folder / "beam_search").glob("results-*.json"), key=lambda path: path.stat().st_mtime_ns)
    return {utterance.id: utterance.hypothesis for utterance in read_results(newest).utterances}


def test_features_made_with_other_settings_are_refused(train, frozen: Path, place: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="data holds features of another front end .*: right is 0, not 2560"):
        train(tmp_path / "right", **{"model.front_end.right": 160})
    with pytest.raises(UserError, match="front_end.pt does not hold this front end: .*layers"):
        train(tmp_path / "layers", **{"model.front_end.layers": "[1]"})
    with pytest.raises(UserError, match="only filter banks can do that"):
        train(tmp_path / "noise", **{"data.batches.volume.enabled": "true"})
    other = tmp_path / "data"
    prepare(place / "corpus", other, place / "front-end" / "front_end.pt", write_conf(tmp_path / "c.yaml", right=160))
    with pytest.raises(UserError, match="right is 2560, not 0.*--front-end-file takes front_end.pt"):
        decode.main(["--exp-dir", str(frozen), "--beam", "4", "--data-dir", str(other)])


def test_a_finished_stage_is_not_done_again(place: Path, capsys) -> None:
    before = (place / "data" / "features" / "train-a" / "00000.lca").stat().st_mtime_ns
    prepare(place / "corpus", place / "data", place / "front-end" / "front_end.pt", place / "conf.yaml", speeds="[1.1]")
    assert capsys.readouterr().out.count("complete") >= 4
    assert (place / "data" / "features" / "train-a" / "00000.lca").stat().st_mtime_ns == before


@needs_published_file
def test_the_standardisation_of_the_published_encoder_is_that_of_the_training_part(place: Path, tmp_path: Path) -> None:
    prepare(place / "corpus", tmp_path / "data", PUBLISHED_FILE, write_conf(tmp_path / "c.yaml"))
    vectors = torch.cat([torch.from_numpy(cut.load_features()) for cut in PreparedData(tmp_path / "data").train_cuts()])
    torch.testing.assert_close(vectors.mean(0), torch.zeros(576), rtol=0, atol=0.02)
    torch.testing.assert_close(vectors.std(0), torch.ones(576), rtol=0, atol=0.05)


def test_files_that_are_no_front_end_are_refused(place: Path, tmp_path: Path) -> None:
    flags = ["--data-dir", str(place / "data"), "--nj", "1", "--conf", str(place / "conf.yaml")]
    (tmp_path / "text.onnx").write_text("this is no model")
    (tmp_path / "text.pt").write_text("nor this")
    for file, sentence in (
        ("none.onnx", "none.onnx: there is no such file; .*npm pack"),
        ("text.onnx", "text.onnx"),
        ("text.pt", "text.pt does not hold this front end"),
    ):
        with pytest.raises(UserError, match=sentence):
            compute_features.main([*flags, "--front-end-file", str(tmp_path / file)])
    extractor = FrontEndExtractor(moonshine_model(moonshine_model_config()).front_end)
    with pytest.raises(UserError, match="8000 samples per second, not 16000: resample"):
        extractor.extract(np.zeros((1, 9000), dtype=np.float32), 8000)
    with pytest.raises(UserError, match="--front-end-file must be given"):
        compute_features.main(flags)
    with pytest.raises(UserError, match="--front-end: .*conf.yaml says moonshine-tiny"):
        compute_features.main([*flags, "--front-end", "filter-banks"])
