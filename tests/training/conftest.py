"""Toy data and a local run on it, shared by the tests of training."""

import pytest
import toy_data
from stopping import run_until

from transducer_gn.config import config_parser, read_config
from transducer_gn.training.distributed import World
from transducer_gn.training.trainer import Trainer


@pytest.fixture(scope="session")
def toy(tmp_path_factory):
    return toy_data.make_toy_data(tmp_path_factory.mktemp("toy") / "data")


@pytest.fixture(scope="session")
def train(toy):
    """A function that trains in this process and returns the trainer; `stop_after` requests a stop at that update."""

    def run(folder, stop_after=None, branch_from=None, allow_changed=False, **changes):
        config, _ = read_config(config_parser("test"), toy_data.toy_settings(toy, **changes))
        folder.mkdir(exist_ok=True)
        return run_until(Trainer(config, folder, World(), branch_from, allow_changed), stop_after)

    return run


@pytest.fixture(scope="session")
def local_run(train, tmp_path_factory):
    """The folder of a local run of one epoch."""
    folder = tmp_path_factory.mktemp("local") / "exp"
    train(folder, **{"training.epochs": 1})
    return folder
