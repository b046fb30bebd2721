"""Invariant: checkpoints that the first version of this program wrote still load, resume and branch.

The fixtures were written at commit 7d81ae0 with the toy data and the settings below: `epoch-1.pt` by a local run,
`checkpoint-13.pt` by a global branch of it that was stopped within an epoch, with competitors pending. That commit
resumed the latter up to the end of epoch 3; `epoch-3.json` has sum and norm of every parameter that it arrived at.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch
from toy_data import parameters_of

from transducer_gn.common import quick
from transducer_gn.common.errors import UserError
from transducer_gn.lattice import recursion
from transducer_gn.recognition.checkpoint import load_checkpoint

FIXTURES = Path(__file__).parents[1] / "fixtures" / "format-1"
SMALL = {
    "model.encoder.dim": 8,
    "model.encoder.attention_dim": 8,
    "model.encoder.feedforward_dim": 16,
    "model.predictor.embedding_dim": 8,
    "model.predictor.dim": 8,
    "model.joiner.dim": 8,
    "training.memory_scan": "false",
}
GLOBAL = SMALL | {
    "training.epochs": 3,
    "normalisation.alpha": 0.3,
    "normalisation.regulariser": 0.05,
    "normalisation.regulariser_ramp": 0.5,
    "normalisation.alpha_delay": 0.5,
    "normalisation.alpha_per_epoch": 0.7,
    "competitors.lookahead": 4,
}


def put(name, folder):
    folder.mkdir()
    shutil.copy(FIXTURES / name, folder)
    return folder


def test_the_content_is_that_of_the_current_format():
    checkpoint = load_checkpoint(FIXTURES / "checkpoint-13.pt")
    progress = checkpoint.progress
    assert (progress.step, progress.epoch, progress.branch_epoch) == (13, 1, 1) and progress.batch > 0
    assert checkpoint.config.optimiser.warmup_updates == 10 and checkpoint.config.competitors.lookahead == 4
    assert checkpoint.training.schedule == {"updates": 13, "epochs": 1}
    pending = checkpoint.training.pending[0]
    assert pending and all(x["tokens"].dim() == 3 and x["lengths"].dim() == 2 for x in pending)
    assert "max_token_density" in checkpoint.training.batches and checkpoint.tokenizer


@pytest.fixture
def as_the_first_version(monkeypatch):
    """It had torch's recursion, products and tanh, and others round differently."""
    monkeypatch.setattr(recursion, "_has_kernels", lambda name, device: False)
    monkeypatch.setattr(quick, "DEVICES", frozenset())


@pytest.mark.usefixtures("as_the_first_version")
def test_resuming_arrives_where_the_first_version_did(train, tmp_path):
    folder = put("checkpoint-13.pt", tmp_path / "exp")
    trainer = train(folder, **GLOBAL)
    assert trainer.state.progress.epoch == 3
    expected = json.loads((FIXTURES / "epoch-3.json").read_text())
    found = parameters_of(folder / "epoch-3.pt")
    assert found.keys() == expected.keys()
    for name, (total, norm) in expected.items():
        value = found[name].double()
        assert float(value.norm()) == pytest.approx(norm, rel=1e-4, abs=1e-6), name
        assert float(value.sum()) == pytest.approx(total, rel=1e-4, abs=1e-4 * norm + 1e-6), name


@pytest.mark.usefixtures("as_the_first_version")
def test_pending_competitors_are_not_searched_again(train, tmp_path):
    """Those of the checkpoint come from parameters that are gone: without them the result would be another."""
    folder = put("checkpoint-13.pt", tmp_path / "exp")
    content = torch.load(folder / "checkpoint-13.pt", weights_only=True)
    content["pending"] = [[]]
    torch.save(content, folder / "checkpoint-13.pt")
    train(folder, **GLOBAL)
    expected = json.loads((FIXTURES / "epoch-3.json").read_text())
    norms = {name: float(value.double().norm()) for name, value in parameters_of(folder / "epoch-3.pt").items()}
    assert any(norm != pytest.approx(expected[name][1], rel=1e-4) for name, norm in norms.items())


def test_a_finished_epoch_is_resumed_and_branched_from(train, tmp_path):
    resumed = train(put("epoch-1.pt", tmp_path / "exp"), **SMALL | {"training.epochs": 2})
    assert resumed.state.progress.epoch == 2 and resumed.state.progress.branch_epoch == 0
    before = load_checkpoint(FIXTURES / "epoch-1.pt")
    step = before.progress.step + 2
    branch = train(tmp_path / "branch", stop_after=step, branch_from=FIXTURES / "epoch-1.pt", **GLOBAL)
    assert (branch.state.progress.step, branch.state.progress.branch_epoch) == (step, 1)
    assert all(state["step"] == step for state in branch.state.learner.optimiser.state.values())
    # What a branch saves is of the current format and goes on.
    assert load_checkpoint(tmp_path / "branch" / f"checkpoint-{step}.pt").progress.batches_in_epoch > 0


def test_changed_settings_are_refused_by_their_current_names(train, tmp_path):
    with pytest.raises(UserError, match=r"optimiser.warmup_updates \(was 10, is 20\)"):
        train(put("checkpoint-13.pt", tmp_path / "exp"), **GLOBAL | {"optimiser.warmup_updates": 20})
