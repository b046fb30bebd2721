"""Invariant: packages import only what stands above them, no import leads round in a circle, and scripts are thin.

The rules stand in `layers.py`. Each is first seen to fail on a tree made up for it.
"""

import sys
from pathlib import Path

import pytest
from import_graph import find_cycle, imports_of, modules_of
from layers import ORDER, PACKAGE, broken_rules, layer_of

REPOSITORY = Path(__file__).resolve().parents[1]
LIBRARY = sys.stdlib_module_names
# All that a script may import of the package: its command, and how errors are told.
THIN = ("commands", "common")


def broken(root: Path, files: dict[str, str]) -> list[str]:
    """What is broken in a tree of these modules, named as in `lattice/points`, each with its text."""
    for name, text in {"__init__": "", **files}.items():
        path = root / PACKAGE / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return broken_rules(imports_of(modules_of(root, PACKAGE)), LIBRARY)


def test_the_package_keeps_the_rules():
    sentences = broken_rules(imports_of(modules_of(REPOSITORY, PACKAGE)), LIBRARY)
    assert not sentences, "\n".join(sentences)


def test_the_package_was_read():
    imports = imports_of(modules_of(REPOSITORY, PACKAGE))
    assert {layer_of(each.importer) for each in imports} >= {"common", "config", "lattice", "search", "training"}
    assert any(each.imported == "transducer_gn.lattice.diagonals" for each in imports)


def test_scripts_are_thin():
    scripts = modules_of(REPOSITORY, "egs", "local")
    imports = imports_of(scripts, modules_of(REPOSITORY, PACKAGE))
    inner = {each for each in imports if each.imported.startswith(PACKAGE)}
    assert scripts
    thick = [str(each) for each in inner if layer_of(each.imported) not in THIN]
    assert not thick, "\n".join(thick)


@pytest.mark.parametrize(
    "line",
    [
        "from transducer_gn.training import trainer",
        "import transducer_gn.training.trainer",
        "from transducer_gn.training.trainer import Trainer",
        "from ..training.trainer import Trainer",
        "from ..training import trainer",
        "def late():\n    from transducer_gn.training.trainer import Trainer",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from transducer_gn.training.trainer import Trainer",
        "import importlib\nimportlib.import_module('transducer_gn.training.trainer')",
        "try:\n    import transducer_gn.training.trainer as trainer\nexcept ImportError:\n    trainer = None",
    ],
)
def test_an_import_against_the_order_is_found_however_it_is_written(tmp_path, line):
    (sentence,) = broken(tmp_path, {"search/beam": line, "training/trainer": ""})
    assert sentence.startswith("transducer_gn.search.beam:")
    assert "imports transducer_gn.training" in sentence
    assert sentence.endswith("search comes before training")


@pytest.mark.parametrize(
    ("importer", "line", "reason"),
    [
        ("config/data", "import transducer_gn.lattice.points", "config comes before lattice"),
        ("lattice/arcs", "import transducer_gn.config.data", "lattice may import only common"),
        ("data/batches", "import transducer_gn.model.joiner", "data may import only common, config"),
        ("data/batches", "import transducer_gn.lattice.points", "data may import only common, config"),
        ("reporting/page", "import transducer_gn.synthetic.twins", "reporting comes before synthetic"),
        ("serving/server", "import transducer_gn.synthetic.twins", "only commands may import synthetic"),
        ("search/beam", "import soundfile", "search works on tensors"),
        ("search/beam", "from lhotse import CutSet", "search works on tensors"),
        ("search/beam", "import kaldi_native_fbank", "search works on tensors"),
        ("search/beam", "import curses", "search works on tensors"),
        ("lattice/points", "import scipy.io", "lattice works on tensors"),
        ("recognition/load", "import matplotlib.pyplot", "optional install, only for reporting, synthetic"),
        (
            "evaluation/decoding",
            "from torch.utils.tensorboard import SummaryWriter",
            "optional install, only for training",
        ),
        ("training/trainer", "import espeakng_loader", "optional install, only for synthetic"),
        ("elsewhere/module", "import transducer_gn.common.errors", "elsewhere has no place in the order"),
        ("training/trainer", "from transducer_gn import load", "the front door is for users"),
        (
            "__init__",
            "from transducer_gn.training.trainer import Trainer",
            "the front door opens only config, recognition",
        ),
    ],
)
def test_each_rule_can_be_broken(tmp_path, importer, line, reason):
    others = {
        "common/errors": "",
        "config/data": "",
        "lattice/points": "",
        "model/joiner": "",
        "synthetic/twins": "",
        "training/trainer": "",
    }
    (sentence,) = broken(tmp_path, {**others, importer: line})
    assert reason in sentence


@pytest.mark.parametrize(
    ("importer", "line"),
    [
        ("config/data", "from transducer_gn.common import errors"),
        ("lattice/arcs", "import math\nimport torch\nfrom transducer_gn.lattice.points import Points"),
        ("data/batches", "import soundfile\nfrom transducer_gn.config.data import BatchConfig"),
        ("commands/report", "import transducer_gn.synthetic.twins\nimport transducer_gn.reporting.page"),
        ("reporting/figures", "import matplotlib"),
        ("__init__", "from transducer_gn.recognition.systems import load"),
    ],
)
def test_what_is_allowed_passes(tmp_path, importer, line):
    others = ("common/errors", "config/data", "lattice/points", "synthetic/twins", "reporting/page")
    assert broken(tmp_path, {**dict.fromkeys(others, ""), importer: line}) == []


def test_a_cycle_of_modules_is_found_inside_a_package(tmp_path):
    (sentence,) = broken(
        tmp_path,
        {
            "model/encoder": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .streaming import Stream",
            "model/streaming": "from transducer_gn.model import chunk",
            "model/chunk": "from transducer_gn.model.encoder import Encoder",
        },
    )
    ring = "transducer_gn.model.chunk -> transducer_gn.model.encoder -> transducer_gn.model.streaming"
    assert sentence == f"cycle of modules: {ring} -> transducer_gn.model.chunk"


def test_a_cycle_of_packages_is_found_where_no_module_has_one(tmp_path):
    sentences = broken(
        tmp_path,
        {
            "search/beam": "import transducer_gn.model.joiner",
            "model/joiner": "",
            "model/scores": "import transducer_gn.search.greedy",
            "search/greedy": "",
        },
    )
    assert [sentence for sentence in sentences if sentence.startswith("cycle")] == [
        "cycle of packages: model -> search -> model"
    ]


def test_a_package_that_imports_from_its_own_module_is_no_cycle_but_the_way_back_is(tmp_path):
    files = {"config/__init__": "from transducer_gn.config.data import DataConfig", "config/data": ""}
    assert broken(tmp_path / "one way", files) == []
    files["config/data"] = "from transducer_gn.config import DataConfig"
    (sentence,) = broken(tmp_path / "both ways", files)
    assert sentence.startswith("cycle of modules: transducer_gn.config -> transducer_gn.config.data")


def test_find_cycle_gives_the_ring_alone():
    assert find_cycle({"a": {"b"}, "b": {"c", "d"}, "c": {"b"}, "d": set()}) == ["b", "c", "b"]
    assert find_cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_the_order_names_each_package_once():
    packages = {path.name for path in (REPOSITORY / PACKAGE).iterdir() if (path / "__init__.py").is_file()}
    assert len(set(ORDER)) == len(ORDER)
    assert packages <= set(ORDER)
