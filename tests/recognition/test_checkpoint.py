"""Invariant: a checkpoint comes back as it was saved; what is no checkpoint of a known format is refused by name."""

import errno
import os
import random
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from transducer_gn.common.errors import UserError
from transducer_gn.config import Config, TrainingConfig
from transducer_gn.recognition.checkpoint import (
    Checkpoint,
    Progress,
    TrainingState,
    load_checkpoint,
    newest_checkpoint,
    write_tensors,
)


@pytest.fixture
def checkpoint():
    training = TrainingState(
        optimiser={"state": {0: {"step": 3, "mean": torch.ones(2)}}, "param_groups": []},
        schedule={"updates": 3, "epochs": 1},
        scaler={},
        watch={"bad_batches": 1},
        batches={"seed": 0, "shards": [("a", 1.5)]},
        pending=[[{"tokens": torch.zeros(1, 2, 3, dtype=torch.int64), "lengths": torch.tensor([[3, -1]])}]],
        sums=[{"loss": 0.5}],
    )
    return Checkpoint(
        config=Config(training=TrainingConfig(epochs=7)),
        progress=Progress(step=3, epoch=1, batch=2, batches_in_epoch=9, branch_epoch=1, best_wer=12.5),
        model={"weight": torch.arange(4.0)},
        average={"start": 2, "count": 1, "parameters": {"weight": torch.ones(4)}},
        tokenizer=b"\x00a token model\xff",
        training=training,
    )


def test_what_is_saved_is_loaded(checkpoint, tmp_path):
    checkpoint.save(tmp_path / "epoch-1.pt")
    found = load_checkpoint(tmp_path / "epoch-1.pt")
    assert (found.config, found.progress, found.tokenizer) == (
        checkpoint.config,
        checkpoint.progress,
        checkpoint.tokenizer,
    )
    assert torch.equal(found.model["weight"], checkpoint.model["weight"])
    assert torch.equal(found.average["parameters"]["weight"], torch.ones(4)) and found.average["start"] == 2
    assert torch.equal(found.training.pending[0][0]["lengths"], torch.tensor([[3, -1]]))
    assert torch.equal(found.training.optimiser["state"][0]["mean"], torch.ones(2))
    for name in ("schedule", "scaler", "watch", "batches", "sums"):
        assert getattr(found.training, name) == getattr(checkpoint.training, name), name


def change_format(path, name):
    content = torch.load(path, weights_only=True)
    torch.save(content | {"format": name}, path)


def test_a_newer_format_is_refused_with_what_to_do(checkpoint, tmp_path):
    path = tmp_path / "checkpoint-9.pt"
    checkpoint.save(path)
    change_format(path, "transducer_gn checkpoint 3")
    with pytest.raises(UserError, match=r'checkpoint-9.pt is a "transducer_gn checkpoint 3".*update the program'):
        load_checkpoint(path)
    # Going on from an older one would write over what the newer program has done.
    checkpoint.save(tmp_path / "checkpoint-2.pt")
    with pytest.raises(UserError, match="checkpoint-9.pt .* update the program"):
        newest_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["transducer_gn checkpoint", "something else", None, 2])
def test_what_is_no_checkpoint_is_named_and_passed_over(checkpoint, tmp_path, caplog, name):
    checkpoint.save(tmp_path / "checkpoint-9.pt")
    change_format(tmp_path / "checkpoint-9.pt", name)
    with pytest.raises(UserError, match="checkpoint-9.pt is not a checkpoint of this program"):
        load_checkpoint(tmp_path / "checkpoint-9.pt")
    replace(checkpoint, progress=Progress(step=1)).save(tmp_path / "checkpoint-1.pt")
    path, found = newest_checkpoint(tmp_path)
    assert path.name == "checkpoint-1.pt" and found.progress.step == 1 and "checkpoint-9.pt is not" in caplog.text


class Intruder:
    """What runs a command of its own when it is unpickled."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def test_no_file_runs_a_program_when_it_is_loaded(checkpoint, tmp_path):
    path = tmp_path / "epoch-1.pt"
    checkpoint.save(path)
    content = torch.load(path, weights_only=True)
    torch.save(content | {"average": Intruder(tmp_path / "made")}, path)
    with pytest.raises(UserError, match="epoch-1.pt"):
        load_checkpoint(path)
    assert not (tmp_path / "made").exists()


def test_a_checkpoint_that_lacks_something_is_named(checkpoint, tmp_path):
    path = tmp_path / "epoch-1.pt"
    checkpoint.save(path)
    content = torch.load(path, weights_only=True)
    del content["average"]
    torch.save(content, path)
    with pytest.raises(
        UserError, match=r"epoch-1.pt is of another version of this program: its parts are others \('average'\)"
    ):
        load_checkpoint(path)


def test_settings_that_make_no_sense_are_named_as_elsewhere(checkpoint, tmp_path):
    path = tmp_path / "epoch-1.pt"
    checkpoint.save(path)
    content = torch.load(path, weights_only=True)
    content["config"]["normalisation"]["alpha"] = 1.5
    torch.save(content, path)
    with pytest.raises(UserError, match=r"epoch-1.pt is of another version of this program: normalisation.alpha"):
        load_checkpoint(path)


def test_the_newest_is_that_of_the_most_updates(checkpoint, tmp_path):
    for name, step in (("checkpoint-90", 90), ("epoch-2", 100), ("checkpoint-9", 9)):
        replace(checkpoint, progress=Progress(step=step)).save(tmp_path / f"{name}.pt")
    assert newest_checkpoint(tmp_path)[0].name == "epoch-2.pt"
    assert newest_checkpoint(tmp_path / "nowhere") is None


def test_a_damaged_file_is_refused_or_what_it_holds_is_as_it_was(checkpoint, tmp_path):
    """One bit of the file is another, anywhere: in numbers, names, directories, checksums, padding."""
    whole, damaged, rng = tmp_path / "epoch-1.pt", tmp_path / "epoch-2.pt", random.Random(0)
    checkpoint.save(whole)
    content, refused = whole.read_bytes(), 0
    for _ in range(200):
        changed = bytearray(content)
        changed[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        damaged.write_bytes(changed)
        try:
            found = load_checkpoint(damaged)
        except UserError as error:
            refused += "epoch-2.pt" in str(error)
        else:
            assert torch.equal(found.model["weight"], checkpoint.model["weight"])
            assert (found.progress, found.tokenizer) == (checkpoint.progress, checkpoint.tokenizer)
    assert refused > 50


def test_a_change_of_a_single_number_is_noticed(checkpoint, tmp_path):
    path = tmp_path / "epoch-1.pt"
    checkpoint.save(path)
    content = path.read_bytes()
    numbers = checkpoint.model["weight"].numpy().tobytes()
    assert numbers in content
    path.write_bytes(content.replace(numbers, torch.arange(4.0).flip(0).numpy().tobytes()))
    with pytest.raises(UserError, match="epoch-1.pt is damaged .* delete it"):
        load_checkpoint(path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_a_full_disk_is_an_error_of_the_system():
    with pytest.raises(OSError, match="No space left") as raised:
        write_tensors({"weight": torch.zeros(100000)}, Path("/dev/full"))
    assert raised.value.errno == errno.ENOSPC


def test_a_new_run_stands_at_its_beginning():
    """Counters from 0, no best epoch yet, and any error rate would be better than the best so far."""
    beginning = dict(step=0, epoch=0, batch=0, batches_in_epoch=0, branch_epoch=0, best_epoch=0, best_alpha=1.0)
    assert asdict(Progress()) == beginning | {"best_wer": float("inf")}
    assert Progress().epochs == 0 and Progress().epochs_since_branch == 0
