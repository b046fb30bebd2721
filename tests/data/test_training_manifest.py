"""Invariant: the training manifest holds every cut once in an order of its seed, and faults of cuts are named."""

import subprocess
from dataclasses import replace

import numpy as np
import pytest

from transducer_gn.common.errors import UserError
from transducer_gn.data import epoch_plan
from transducer_gn.data.manifest_files import read_lines
from transducer_gn.data.prepared import PreparedData
from transducer_gn.data.training_manifest import (
    archive_fault,
    combine_training_parts,
    cut_fault,
    features_fault,
    index_training_manifest,
    validate,
)


def copy_of(prepared, folder):
    for name in ("fbank", "parts.json", "manifests"):
        subprocess.run(["cp", "-r", prepared / name, folder], check=True)
    return PreparedData(folder)


def test_the_order_depends_on_the_seed_alone(prepared, tmp_path):
    data = copy_of(prepared, tmp_path)
    orders = []
    for seed in (0, 0, 1):
        combine_training_parts(data, seed)
        orders.append(list(read_lines(tmp_path / "cuts_train.jsonl.gz")))
    lines = list(read_lines(tmp_path / "fbank" / "cuts_train-mini.jsonl.gz"))
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) == sorted(lines) and orders[0] != lines


@pytest.mark.parametrize(("small", "made"), [(10, True), (1000, False)])
def test_a_large_manifest_is_indexed_for_all_token_models(prepared, tmp_path, monkeypatch, small, made):
    monkeypatch.setattr(epoch_plan, "SMALL_CORPUS", small)
    data = copy_of(prepared, tmp_path)
    combine_training_parts(data, 0)
    index_training_manifest(data, [PreparedData(prepared).tokenizer(size) for size in (60, 32)])
    assert len(list(tmp_path.glob("cuts_train.index/tokens-*.npy"))) == (2 if made else 0)
    assert (tmp_path / "cuts_train.index").exists() == made


def test_validation_finds_features_that_are_gone_or_cut_off(prepared, tmp_path):
    for name in ("fbank", "parts.json", "manifests"):
        subprocess.run(["cp", "-r", prepared / name, tmp_path], check=True)
    archive = tmp_path / "fbank" / "test-mini" / "00000.lca"
    archive.write_bytes(archive.read_bytes()[:-100])
    with pytest.raises(UserError, match="cuts_test-mini.jsonl.gz, cut 3000-1-0015: its features are missing in"):
        validate(PreparedData(tmp_path), [])


def test_what_is_wrong_with_a_cut_is_said(prepared):
    data = PreparedData(prepared)
    cut = next(iter(data.cuts("dev-mini")))
    supervision = cut.supervisions[0]
    assert cut_fault(cut, [data.tokenizer(60)]) is archive_fault(cut, {}) is features_fault(cut) is None
    faults = {
        "2 supervisions": replace(cut, supervisions=[supervision] * 2),
        "does not lie inside": replace(cut, supervisions=[replace(supervision, duration=cut.duration + 1)]),
        "text is empty": replace(cut, supervisions=[replace(supervision, text="")]),
        "characters that the token model does not know": replace(cut, supervisions=[replace(supervision, text="Ж")]),
        "no features": cut.drop_features(),
        "have no place in": replace(cut, features=replace(cut.features, storage_key="0,x")),
        "features are missing in": replace(cut, features=replace(cut.features, storage_path="nowhere.lca")),
    }
    for sentence, wrong in faults.items():
        assert sentence in (cut_fault(wrong, [data.tokenizer(60)]) or archive_fault(wrong, {}))


def changed_features(prepared, monkeypatch, change):
    """A cut whose features are read as something else."""
    cut = next(iter(PreparedData(prepared).cuts("dev-mini")))
    load = type(cut).load_features
    monkeypatch.setattr(type(cut), "load_features", lambda self: change(load(self)))
    return cut


def test_features_that_are_not_finite_are_a_fault(prepared, monkeypatch):
    assert (
        features_fault(changed_features(prepared, monkeypatch, lambda x: x * np.nan)) == "its features are not finite"
    )


@pytest.mark.parametrize("change", [lambda x: x[:-1], lambda x: x[:, 1:], lambda x: x[0]])
def test_features_of_another_shape_are_named_with_what_to_do(prepared, monkeypatch, change):
    cut = changed_features(prepared, monkeypatch, change)
    with pytest.raises(
        UserError, match=rf"features of {cut.id} .* have shape .*delete \S+ and \S+, and run prepare.sh"
    ):
        features_fault(cut)
