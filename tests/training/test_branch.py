"""Invariant: a branch knows where it comes from: it refuses other tokens, averages reach back where alpha allows, and
the epochs that are needed are kept.
"""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from toy_data import toy_settings

from transducer_gn.common.errors import UserError
from transducer_gn.config import SystemConfig, config_parser, read_config
from transducer_gn.data.layout import FRONT_END_RECORD
from transducer_gn.data.tokenizer import save_tokenizer, train_tokenizer
from transducer_gn.recognition.checkpoint import load_checkpoint, remove_old_epochs
from transducer_gn.recognition.system import read_parameters
from transducer_gn.training.distributed import World
from transducer_gn.training.start import start_run

OFTEN = {"training.average_period": 1, "training.memory_scan": "false"}


@pytest.fixture(scope="module")
def parent(train, tmp_path_factory):
    """A local run of two epochs."""
    folder = tmp_path_factory.mktemp("runs") / "parent"
    train(folder, **OFTEN, **{"training.epochs": 2})
    return folder


def start(data, folder, **changes):
    branch_from = changes.pop("branch_from")
    config, _ = read_config(config_parser("test"), toy_settings(data, **changes))
    return start_run(config, folder, World(), branch_from, allow_changed=False)


def other_texts():
    letters = "ABCDEFGHIKLMNOPRSTUY"
    return [f"{a}{b}{c}" for a in letters for b in letters for c in "AEIOU"]


def test_another_token_model_of_the_same_size_is_refused(toy, parent, tmp_path):
    data = replace(toy, folder=tmp_path / "data")
    shutil.copytree(toy.folder, data.folder)
    save_tokenizer(train_tokenizer(other_texts(), toy.vocab_size), data.folder / f"lang_unigram_{toy.vocab_size}")
    sentence = r"epoch-1.pt was trained with another token model than that of the data: token \d+ was"
    with pytest.raises(UserError, match=sentence):
        start(data, tmp_path / "exp", branch_from=parent / "epoch-1.pt")


def test_features_of_another_front_end_are_refused(toy, tmp_path):
    data = replace(toy, folder=tmp_path / "data")
    shutil.copytree(toy.folder, data.folder)
    start(data, tmp_path / "exp", branch_from=None)
    (data.folder / FRONT_END_RECORD).write_text('{"front_end": "moonshine-tiny"}')
    with pytest.raises(UserError, match="features of another front end .* is moonshine-tiny, not filter-banks"):
        start(data, tmp_path / "exp", branch_from=None)


def test_a_token_model_is_its_pieces_and_scores_not_its_bytes(toy, parent, tmp_path):
    data = replace(toy, folder=tmp_path / "data")
    shutil.copytree(toy.folder, data.folder)
    path = data.folder / f"lang_unigram_{toy.vocab_size}" / "tokenizer.model"
    # A field that sentencepiece does not know, as another version of it may write: number 150, the integer 1.
    path.write_bytes(path.read_bytes() + bytes([0xB0, 0x09, 0x01]))
    assert start(data, tmp_path / "exp", branch_from=parent / "epoch-1.pt").progress.epoch == 1


def mean_of(additions):
    return {name: torch.stack([each[name] for each in additions]).double().mean(0) for name in additions[0]}


def test_averages_reach_back_over_a_branch_of_the_same_alpha(train, parent, tmp_path):
    child = parent.parent / "child"
    kept = {"training.save_interval": 1, "training.keep_last": 100}
    trainer = train(child, branch_from=parent / "epoch-1.pt", **OFTEN, **kept, **{"training.epochs": 3})
    first = load_checkpoint(parent / "epoch-1.pt").progress.step
    last = trainer.state.progress.step
    # One epoch of the child and one more, which began with the branch: from the parent's epoch 1 on.
    name, found = read_parameters(child, SystemConfig(epoch=3, avg=2))
    assert name == "epoch-3-avg-2"
    steps = {n: load_checkpoint(child / f"checkpoint-{n}.pt").model for n in range(first + 1, last + 1)}
    # The end of an epoch is counted once more.
    ends = [load_checkpoint(child / f"epoch-{n}.pt").model for n in (2, 3)]
    names = dict(trainer.state.learner.model.named_parameters())
    expected = mean_of([{key: model[key] for key in names} for model in (*steps.values(), *ends)])
    for key, value in expected.items():
        torch.testing.assert_close(found.model[key].double(), value, rtol=1e-4, atol=1e-5)
    # All three epochs, the parent's first one included.
    read_parameters(child, SystemConfig(epoch=3, avg=3))
    assert json.loads((child / "branch.json").read_text()) == {"from": "../parent/epoch-1.pt"}


def test_averages_do_not_reach_back_over_another_alpha(train, parent, tmp_path):
    child = parent.parent / "global"
    train(child, branch_from=parent / "epoch-1.pt", **OFTEN, **{"training.epochs": 2, "normalisation.alpha": 0.5})
    with pytest.raises(UserError, match="alpha was still changing in between"):
        read_parameters(child, SystemConfig(epoch=2, avg=1))


def test_the_newest_epochs_the_best_and_those_of_branches_are_kept(train, tmp_path, monkeypatch):
    rates = iter([30.0, 10.0, 20.0, 25.0, 15.0, 40.0])
    monkeypatch.setattr("transducer_gn.training.bookkeeper.Bookkeeper.validate", lambda self: next(rates))
    settings = {"training.epochs": 6, "training.keep_epochs": 1, "training.keep_always": "[3]"}
    train(tmp_path / "exp", **settings, **{"training.memory_scan": "false", "data.batches.max_duration": 60})
    assert {path.name for path in (tmp_path / "exp").glob("epoch-*.pt")} == {"epoch-2.pt", "epoch-3.pt", "epoch-6.pt"}
    assert json.loads((tmp_path / "exp" / "best.json").read_text())["epoch"] == 2


def test_only_checkpoints_are_removed(tmp_path):
    names = ["epoch-1.pt", "epoch-2.pt", "epoch-10.pt", "epoch-best.pt", "checkpoint-3.pt", "bad-batch-1-0.pt"]
    for name in names:
        (tmp_path / name).touch()
    remove_old_epochs(tmp_path, 1, {1})
    assert {path.name for path in tmp_path.iterdir()} == set(names) - {"epoch-2.pt"}


def test_noise_that_was_not_prepared_is_named(toy, tmp_path):
    with pytest.raises(UserError, match=r"has no noise \(cuts_musan.jsonl.gz\); run ./prepare.sh with --musan"):
        start(toy, tmp_path, branch_from=None, **{"data.batches.noise.enabled": "true"})
