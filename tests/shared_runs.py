"""Toy data, and a local and a global run on it that are barely trained: enough to decode, measure and report."""

import pytest
import toy_data

from transducer_gn.config import config_parser, read_config
from transducer_gn.training.distributed import World
from transducer_gn.training.trainer import Trainer


@pytest.fixture(scope="session")
def toy(tmp_path_factory):
    return toy_data.make_toy_data(tmp_path_factory.mktemp("toy") / "data", train=24, dev=8, seed=3)


@pytest.fixture(scope="session")
def runs(toy, tmp_path_factory):
    """A folder with the runs "local" (epochs 1 to 3) and "global" (branched off after epoch 1, up to epoch 4)."""
    root = tmp_path_factory.mktemp("runs")

    def train(name, branch_from=None, **changes):
        config, _ = read_config(
            config_parser("test"), toy_data.toy_settings(toy, **{"training.memory_scan": "false"} | changes)
        )
        (root / name).mkdir()
        Trainer(config, root / name, World(), branch_from).run()

    train("local", **{"training.epochs": 3})
    train(
        "global",
        root / "local" / "epoch-1.pt",
        **{
            "training.epochs": 4,
            "normalisation.alpha": 0.5,
            "normalisation.alpha_delay": 0.5,
            "normalisation.alpha_per_epoch": 0.5,
            "normalisation.regulariser": 0.01,
        },
    )
    return root
