"""Invariant: stopping anywhere and resuming gives the same parameters, bit for bit, as never having stopped."""

import json
import shutil

import pytest
import torch
from toy_data import parameters_of, toy_settings

from transducer_gn.common.errors import UserError
from transducer_gn.config import config_parser, read_config
from transducer_gn.reporting.runs import choose_challenger, read_run
from transducer_gn.reporting.tables import runs_table
from transducer_gn.training.distributed import World
from transducer_gn.training.trainer import Trainer

GLOBAL = {
    "training.epochs": 3,
    "normalisation.alpha": 0.3,
    "normalisation.regulariser": 0.05,
    "normalisation.regulariser_ramp": 0.5,
    "normalisation.alpha_delay": 0.5,
    "normalisation.alpha_per_epoch": 0.7,
}
LOOKAHEAD = GLOBAL | {"competitors.lookahead": 4}
MWER = LOOKAHEAD | {"mwer.weight": 0.5, "mwer.scores": "interpolated", "optimiser.cooldown_epochs": 1.5}


def assert_same_parameters(one, other):
    for name, value in parameters_of(one).items():
        assert torch.equal(value, parameters_of(other)[name]), name


@pytest.fixture(
    scope="module", params=[GLOBAL, LOOKAHEAD, MWER], ids=["same pass", "look-ahead", "mwer, reading and cool-down"]
)
def uninterrupted(request, train, local_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "exp"
    settings = dict(request.param)
    if "mwer.weight" in settings:
        (folder.parent / "text.txt").write_text("MAIL AND ORDER\nNAIL BUT POLISH\nSO FOR NOT\n")
        settings |= {"reading.text": folder.parent / "text.txt", "reading.tokens": 50}
    trainer = train(folder, branch_from=local_run / "epoch-1.pt", **settings)
    return settings, folder, trainer


def alpha_by_step(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line for line in lines if line["kind"] == "train"}


@pytest.mark.parametrize("where", ["ramp", "slope", "target"])
def test_resume_equals_never_having_stopped(uninterrupted, where, train, local_run, tmp_path):
    settings, whole, trainer = uninterrupted
    logged = alpha_by_step(whole)
    step = {
        "ramp": min(step for step, line in logged.items() if 0 < line["regulariser_weight"] < 0.05),
        "slope": min(step for step, line in logged.items() if 0.4 < line["alpha"] < 1) + 1,
        "target": max(logged) - 3,
    }[where]
    folder = tmp_path / "exp"
    stopped = train(folder, stop_after=step, branch_from=local_run / "epoch-1.pt", **settings)
    assert stopped.state.progress.step == step < trainer.state.progress.step
    if where == "slope" and "competitors.lookahead" in settings:
        assert stopped.state.planner.pending, "the stop was to fall within a group that was searched together"
    train(folder, branch_from=local_run / "epoch-1.pt", **settings)
    assert_same_parameters(folder / "epoch-3.pt", whole / "epoch-3.pt")
    ours, theirs = alpha_by_step(folder), alpha_by_step(whole)
    assert list(ours) == list(theirs)
    for step in theirs:
        timeless = [
            {k: v for k, v in line.items() if not k.startswith("seconds")} for line in (ours[step], theirs[step])
        ]
        assert timeless[0] == timeless[1]


def test_averages_and_bookkeeping_are_resumed_too(uninterrupted, train, local_run, tmp_path):
    settings, whole, trainer = uninterrupted
    folder = tmp_path / "exp"
    train(folder, stop_after=trainer.state.progress.step - 2, branch_from=local_run / "epoch-1.pt", **settings)
    resumed = train(folder, branch_from=local_run / "epoch-1.pt", **settings)
    assert resumed.state.progress == trainer.state.progress
    ours, theirs = resumed.state.learner.average, trainer.state.learner.average
    assert (ours.start, ours.count) == (theirs.start, theirs.count)
    for name, value in theirs.parameters.items():
        assert torch.equal(value, ours.parameters[name])
    assert (folder / "best.json").read_text() == (whole / "best.json").read_text()


def test_cut_off_checkpoint_is_named_and_the_one_before_used(train, local_run, tmp_path, caplog):
    caplog.set_level("INFO")
    folder = tmp_path / "exp"
    settings = {"training.epochs": 2, "training.save_interval": 3}
    whole = train(tmp_path / "whole", **settings)
    train(folder, stop_after=7, **settings)
    assert {path.name for path in folder.glob("checkpoint-*.pt")} == {
        "checkpoint-3.pt",
        "checkpoint-6.pt",
        "checkpoint-7.pt",
    }
    newest = folder / "checkpoint-7.pt"
    newest.write_bytes(newest.read_bytes()[:5000])
    (folder / "checkpoint-8.pt").write_bytes(b"something else")
    torch.save({"model": {}}, folder / "checkpoint-9.pt")
    train(folder, **settings)
    assert all(f"{name} " in caplog.text for name in ("checkpoint-7.pt", "checkpoint-8.pt", "checkpoint-9.pt"))
    assert "resuming from" in caplog.text and "checkpoint-6.pt: epoch" in caplog.text
    assert_same_parameters(folder / "epoch-2.pt", tmp_path / "whole" / "epoch-2.pt")
    assert whole.state.progress.epoch == 2


def test_checkpoints_within_epochs_are_limited_and_those_of_epochs_stay(train, tmp_path):
    train(tmp_path / "exp", **{"training.epochs": 2, "training.save_interval": 2, "training.keep_last": 2})
    names = sorted(path.name for path in (tmp_path / "exp").glob("*.pt"))
    assert [name for name in names if name.startswith("epoch")] == ["epoch-1.pt", "epoch-2.pt"]
    assert len([name for name in names if name.startswith("checkpoint")]) == 2


def test_changed_settings_are_refused_by_name(train, local_run, tmp_path):
    folder = tmp_path / "exp"
    train(folder, stop_after=2, **{"training.epochs": 2})
    with pytest.raises(UserError, match=r"optimiser.initial_lr \(was 0.003, is 0.01\).*--allow-changed"):
        train(folder, **{"training.epochs": 2, "optimiser.initial_lr": 0.01})
    # What changes nothing that is computed may change.
    train(folder, stop_after=4, **{"training.epochs": 3, "training.log_interval": 1})
    train(folder, stop_after=5, allow_changed=True, **{"training.epochs": 3, "optimiser.initial_lr": 0.01})


def test_branching_takes_over_and_starts_its_own_schedule(train, local_run, tmp_path):
    parent = torch.load(local_run / "epoch-1.pt", weights_only=True)
    trainer = train(
        tmp_path / "exp", stop_after=parent["progress"]["step"] + 1, branch_from=local_run / "epoch-1.pt", **GLOBAL
    )
    assert trainer.state.progress.branch_epoch == 1 and trainer.state.progress.epoch == 1
    # The learning rate falls with the updates and the epochs of all of training.
    assert parent["training"]["schedule"] == {"updates": parent["progress"]["step"], "epochs": 1}
    schedule = trainer.state.learner.schedule
    assert (schedule.updates, schedule.epochs) == (parent["progress"]["step"] + 1, 1)
    state = trainer.state.learner.optimiser.state_dict()["state"]
    assert all(x["step"] == parent["progress"]["step"] + 1 for x in state.values())


def test_a_branch_may_have_a_learning_rate_of_its_own(train, local_run, tmp_path):
    branch, last = (
        local_run / "epoch-1.pt",
        torch.load(local_run / "epoch-1.pt", weights_only=True)["progress"]["step"] + 1,
    )
    rates = [
        train(
            tmp_path / str(rate), stop_after=last, branch_from=branch, **GLOBAL | {"optimiser.initial_lr": rate}
        ).state.learner.optimiser.param_groups[0]["lr"]
        for rate in (0.003, 0.001)
    ]
    assert rates[0] == pytest.approx(3 * rates[1])


def test_a_branch_may_have_a_precision_of_its_own(train, local_run, tmp_path):
    """A run in float32 has no scale of the loss to take over: one in float16 begins with torch's."""
    branch = local_run / "epoch-1.pt"
    step = torch.load(branch, weights_only=True)["progress"]["step"] + 1
    half = train(tmp_path / "half", stop_after=step, branch_from=branch, **GLOBAL | {"training.precision": "float16"})
    # The first gradient may have been too large for it.
    assert half.state.learner.scaler.get_scale() * 2 >= torch.amp.GradScaler("cpu").get_scale()
    saved = torch.load(tmp_path / "half" / f"checkpoint-{step}.pt", weights_only=True)["training"]["scaler"]
    assert saved == half.state.learner.scaler.state_dict() != {}


def test_branching_from_another_model_is_refused(train, local_run, tmp_path):
    with pytest.raises(UserError, match="model.encoder.layers"):
        train(tmp_path / "exp", branch_from=local_run / "epoch-1.pt", **GLOBAL | {"model.encoder.layers": 2})


def test_branching_within_an_epoch_is_refused(train, tmp_path):
    train(tmp_path / "exp", stop_after=2, **{"training.epochs": 1})
    with pytest.raises(UserError, match="lies within an epoch"):
        train(tmp_path / "branch", branch_from=tmp_path / "exp" / "checkpoint-2.pt", **GLOBAL)


def test_a_missing_branch_is_named(train, tmp_path):
    with pytest.raises(UserError, match="there is no checkpoint .*nowhere.pt"):
        train(tmp_path / "exp", branch_from=tmp_path / "nowhere.pt", **GLOBAL)


def test_without_a_dev_set_the_newest_epoch_is_the_best(train, toy, tmp_path, caplog):
    data = tmp_path / "data"
    shutil.copytree(toy.folder, data)
    (data / "parts.json").write_text(json.dumps({"train": ["train"], "dev": [], "test": ["test"]}))
    trainer = train(
        tmp_path / "exp", **{"training.epochs": 3, "data.folder": str(data), "training.validate_interval": 2}
    )
    assert trainer.state.progress.best_epoch == 3
    assert json.loads((tmp_path / "exp" / "best.json").read_text()) == {"epoch": 3, "wer": None, "last_epoch": 3}
    assert "there is no dev set" in caplog.text
    rows = [json.loads(line) for line in (tmp_path / "exp" / "metrics.jsonl").read_text().splitlines()]
    assert {row["kind"] for row in rows} == {"train"}
    run = read_run(tmp_path / "exp")
    assert run.is_finished and choose_challenger([run]) is None
    assert "–" in runs_table([run]).rows[0]


def test_a_stop_at_the_end_of_an_epoch_says_so_too(toy, tmp_path, caplog):
    caplog.set_level("INFO")
    config, _ = read_config(config_parser("test"), toy_settings(toy, **{"training.epochs": 2}))
    trainer = Trainer(config, tmp_path, World())
    after_epoch = trainer.bookkeeper.after_epoch

    def stop_while_validating():
        after_epoch()
        trainer.stop()

    trainer.bookkeeper.after_epoch = stop_while_validating
    trainer.run()
    assert trainer.state.progress.epoch == 1 and not list(tmp_path.glob("checkpoint-*.pt"))
    assert "the same command goes on from there" in caplog.text
