"""Invariant: a system has exactly the parameters and the alpha that were asked for, or a sentence says why not."""

import json
import shutil
from dataclasses import asdict, replace

import pytest
import torch

from transducer_gn.common.errors import UserError
from transducer_gn.config import Config, RecognitionConfig, SystemConfig, config_from
from transducer_gn.data.prepared import PreparedData
from transducer_gn.recognition.checkpoint import load_checkpoint
from transducer_gn.recognition.system import load_system
from transducer_gn.recognition.utterances import recognition_identity


def parameters(system):
    return dict(system.model.named_parameters())


def assert_equal_parameters(system, expected):
    for name, value in parameters(system).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-5, atol=1e-6)


def test_best_epoch_is_the_default(runs):
    best = json.loads((runs / "local" / "best.json").read_text())["epoch"]
    system = load_system(runs / "local")
    assert system.name == f"epoch-{best}"
    assert_equal_parameters(system, load_checkpoint(runs / "local" / f"epoch-{best}.pt").model)
    assert not system.model.training


@pytest.mark.parametrize(
    ("alpha", "exact", "mwer", "limit"),
    [(0.3, True, 0.0, 2), (0.3, False, 0.0, 4), (1.0, False, 0.9, 4), (1.0, False, 0.0, 3)],
    ids=[
        "exact: as Z was summed",
        "global: as competitors were searched",
        "expected errors: as competitors were searched",
        "local: as far as is useful",
    ],
)
def test_systems_are_searched_as_far_as_competitors_were(runs, alpha, exact, mwer, limit):
    system = load_system(runs / "local")
    normalisation = replace(system.config.normalisation, alpha=alpha, exact=exact, exact_tokens_per_frame=2)
    competitors = replace(system.config.competitors, max_tokens_per_frame=4)
    finite = replace(system.config.model, predictor=replace(system.config.model.predictor, kind="finite-state"))
    config = replace(
        system.config,
        normalisation=normalisation,
        competitors=competitors,
        mwer=replace(system.config.mwer, weight=mwer),
        model=finite,
    )
    system = replace(system, config=config)
    assert system.tokens_per_frame(RecognitionConfig()) == limit
    nothing = PreparedData(runs / "nothing")
    assert recognition_identity(system, RecognitionConfig(), nothing, "test")["tokens_per_frame"] == limit
    assert system.tokens_per_frame(RecognitionConfig(max_tokens_per_frame=5)) == 5


def test_average_is_over_the_epochs_asked_for(runs):
    later, earlier = (load_checkpoint(runs / "local" / f"epoch-{n}.pt").average for n in (3, 1))
    system = load_system(runs / "local", SystemConfig(epoch=3, avg=2))
    between = later["count"] - earlier["count"]
    expected = {
        name: (later["count"] * value - earlier["count"] * earlier["parameters"][name]) / between
        for name, value in later["parameters"].items()
    }
    assert system.name == "epoch-3-avg-2"
    assert_equal_parameters(system, expected)
    assert_equal_parameters(load_system(runs / "local", SystemConfig(epoch=3, avg=3)), later["parameters"])


def test_alpha_is_that_of_the_checkpoint_or_the_one_asked_for(runs):
    # The run moves by 0.5 per epoch, half an epoch after it branched off after epoch 1, down to 0.5.
    assert load_system(runs / "local").alpha == 1
    assert load_system(runs / "global", SystemConfig(epoch=2)).alpha == 0.75
    assert load_system(runs / "global", SystemConfig(epoch=4)).alpha == 0.5
    asked = load_system(runs / "global", SystemConfig(epoch=4, alpha=0.9))
    assert asked.alpha == 0.9
    assert asked.fingerprint != load_system(runs / "global", SystemConfig(epoch=4)).fingerprint


def test_alpha_within_an_epoch_is_only_known_where_it_stands_still(runs, tmp_path):
    within = load_checkpoint(runs / "global" / "epoch-2.pt")
    replace(within, progress=replace(within.progress, batch=1)).save(tmp_path / "checkpoint-7.pt")
    with pytest.raises(UserError, match="on its way from 0.75 to 0.5.*--alpha"):
        load_system(tmp_path, SystemConfig(iter=7))
    assert load_system(tmp_path, SystemConfig(iter=7, alpha=0.6)).alpha == 0.6
    replace(within, progress=replace(within.progress, batch=1, epoch=3)).save(tmp_path / "checkpoint-8.pt")
    assert load_system(tmp_path, SystemConfig(iter=8)).name == "checkpoint-8"


def test_configuration_survives_the_checkpoint(runs):
    saved = load_checkpoint(runs / "global" / "epoch-4.pt").config
    assert saved.normalisation.alpha == 0.5
    assert config_from(asdict(saved)) == saved
    assert config_from(asdict(Config())) == Config()


def test_what_is_not_there_is_named(runs, tmp_path):
    with pytest.raises(UserError, match="no experiment folder"):
        load_system(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no finished epoch"):
        load_system(tmp_path)
    with pytest.raises(UserError, match="no checkpoint .*epoch-9.pt"):
        load_system(runs / "local", SystemConfig(epoch=9))
    with pytest.raises(UserError, match="only 3 epochs"):
        load_system(runs / "local", SystemConfig(epoch=3, avg=4))
    for path in (runs / "global" / "epoch-4.pt", runs / "local" / "epoch-1.pt"):
        shutil.copy(path, tmp_path)
    with pytest.raises(UserError, match="alpha was still changing"):
        load_system(tmp_path, SystemConfig(epoch=4, avg=3))
    (tmp_path / "best.json").write_text("{")
    with pytest.raises(UserError, match="best.json cannot be read"):
        load_system(tmp_path)


def test_a_damaged_checkpoint_is_named(runs, tmp_path):
    shutil.copy(runs / "local" / "epoch-1.pt", tmp_path)
    (tmp_path / "epoch-1.pt").write_bytes((tmp_path / "epoch-1.pt").read_bytes()[:1000])
    with pytest.raises(UserError, match="epoch-1.pt is damaged"):
        load_system(tmp_path, SystemConfig(epoch=1))


@pytest.mark.parametrize("wrong", [{"epoch": 1, "iter": 5}, {"avg": -1}, {"iter": 5, "avg": 1}, {"alpha": 1.5}])
def test_contradictions_are_refused(wrong):
    with pytest.raises(UserError):
        SystemConfig(**wrong)
