"""Invariant: what can be counted of the house style holds everywhere, and names that others build on stay put.

The counting is done by `house.py`; each kind of finding is first seen on a file made up for it.
"""

import importlib
import inspect
import re
import sys
import textwrap
import tomllib

import house
import pytest
from house import python_files, text_files
from import_graph import imports_of, modules_of
from packaging.requirements import Requirement

CODE = ("transducer_gn", "egs", "local", "benchmarks")
WRITTEN = (
    "*.md",
    "*.sh",
    "*.toml",
    "*.txt",
    "setup.py",
    "conf/**/*.yaml",
    "docs/**/*.md",
    "egs/**/*.md",
    "egs/**/*.sh",
    "local/*.sh",
)


def assert_nothing(check, paths):
    """Fail with all that a check finds in these files, of which there must be some."""
    assert paths
    found = [finding for path in paths for finding in check(path)]
    assert not found, "\n".join(found)


def test_files_functions_and_signatures_are_small():
    assert_nothing(house.oversized, python_files(*CODE))


def test_lines_fit():
    assert_nothing(house.wide_lines, [*python_files(*CODE, "tests"), *text_files("*.sh", "local/*.sh")])


def test_public_names_are_documented_and_typed():
    assert_nothing(house.undocumented, python_files(*CODE))


def test_docstrings_have_one_dialect():
    assert_nothing(house.other_dialects, python_files(*CODE, "tests"))


def test_tests_open_with_what_they_hold():
    tests = [path for path in python_files("tests") if path.name.startswith("test_")]
    assert_nothing(lambda path: [f for f in house.undocumented(path) if f.endswith("with a docstring")], tests)


def test_words_are_spelt_one_way():
    assert_nothing(house.misspelt, [*python_files(*CODE, "tests"), *text_files(*WRITTEN)])


def test_no_path_of_a_machine():
    assert_nothing(house.machine_paths, [*python_files(*CODE, "tests"), *text_files(*WRITTEN)])


def body(lines):
    """A function of so many lines below its `def`."""
    return "".join(f"    x = {line}\n" for line in range(lines))


def docstring(section, head="def f():"):
    """A function or class with a section in its docstring."""
    return f'{head}\n    """A.\n\n{textwrap.indent(section, "    ")}\n    """\n'


@pytest.mark.parametrize(
    ("check", "text", "finding"),
    [
        (house.oversized, "#\n" * 360, None),
        (house.oversized, "#\n" * 361, "file.py:1 has 361 lines, more than 360"),
        (house.oversized, "def f():\n" + body(44), None),
        (house.oversized, "def f():\n" + body(45), "file.py:1 f has 46 lines, more than 45"),
        (house.oversized, 'def f():\n    """A.\n\n    B.\n    """\n' + body(44), None),
        (house.oversized, "class C:\n    def f(self, a, b, c, d, e, f, g): ...", None),
        (house.oversized, "def f(a, b, c, d, e, f, *, g, h): ...", "file.py:1 f takes 8 parameters, more than 7"),
        (house.oversized, "def f(a, b, c, d, e, f, *g, **h): ...", "file.py:1 f takes 8 parameters, more than 7"),
        (house.wide_lines, "x" * 120, None),
        (house.wide_lines, "\n" + "x" * 121, "file.py:2 has 121 columns, more than 120"),
        (house.undocumented, "x = 1", "file.py:1 does not open with a docstring"),
        (house.undocumented, '"""A."""\ndef f() -> None: ...', "file.py:2 f has no docstring"),
        (
            house.undocumented,
            '"""A."""\nclass C:\n    """B."""\n    def f(self) -> None: ...',
            "file.py:4 f has no doc",
        ),
        (house.undocumented, '"""A."""\ndef f(a, b: int):\n    """B."""', "file.py:2 f lacks a type: a, its result"),
        (
            house.undocumented,
            '"""A."""\nclass C:\n    """B."""\n    def __init__(self): ...',
            "lacks a type: its result",
        ),
        (house.undocumented, '"""A."""\ndef _f(a): ...\nclass _C:\n    def f(self): ...', None),
        (house.other_dialects, docstring("Args:\n    a: one\n    b: two. Or three."), None),
        (house.other_dialects, docstring("Args:\n  a: one"), "file.py:1 does not indent Args by 4"),
        (
            house.other_dialects,
            docstring("Args:\n    a: one."),
            "file.py:1 ends one sentence with a full stop: a: one.",
        ),
        (house.other_dialects, docstring("Returns:\n    one."), "ends one sentence with a full stop: one."),
        (house.other_dialects, docstring("Parameters:\n    a: one"), "file.py:1 has a section Parameters"),
        (house.other_dialects, "@dataclass\n" + docstring("Args:\n    a: one", "class C:"), "are Attributes"),
        (house.misspelt, "# the normali" + "zed weights", "file.py:1 normali" + "zed"),
        (house.misspelt, "class Recogni" + "zer:", "file.py:1 Recogni" + "zer"),
        (house.misspelt, "torch.nn.functional.normalize(x); tokenizer = 1; optimiser: Optimizer", None),
        (house.machine_paths, "see /ho" + "me/somebody/data", "file.py:1 /ho" + "me/somebody"),
        (house.machine_paths, "egs/home/x; $folder/work/y; https://example.org/root/z", None),
    ],
)
def test_each_finding_can_be_made(tmp_path, check, text, finding):
    path = tmp_path / "file.py"
    path.write_text(text)
    found = list(check(path))
    assert len(found) == (finding is not None)
    assert finding is None or finding in found[0]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        (
            "transducer_gn.lattice.recursion.sequence_scores",
            "token_weights blank_weights token_lengths frame_lengths backend",
        ),
        ("transducer_gn.lattice.emission.emission_times", "token_weights blank_weights token_lengths frame_lengths"),
        ("transducer_gn.lattice.finite_state.log_normaliser", "logits frame_lengths max_tokens_per_frame"),
        (
            "transducer_gn.search.beam.beam_search",
            "model encoder_out frame_lengths beam nbest alpha max_tokens_per_frame",
        ),
        ("transducer_gn.load", "path device"),
    ],
)
def test_names_that_others_build_on_stay_put(name, parameters):
    module, _, attribute = name.rpartition(".")
    found = list(inspect.signature(getattr(importlib.import_module(module), attribute)).parameters)
    assert found[: len(parameters.split())] == parameters.split()


# What is imported under another name than it is installed by.
INSTALLED_AS = {"yaml": "pyyaml"}
# Imported where they are there, asked of nobody: installing them takes more than pip.
NEVER_ASKED = {"k2", "fast_rnnt", "torchaudio"}


def declared(*extras):
    """Names of the packages that an installation of the package with some extras declares."""
    project = tomllib.loads((house.REPOSITORY / "pyproject.toml").read_text())["project"]
    names = set()
    for line in project["dependencies"] + [
        each for extra in extras for each in project["optional-dependencies"][extra]
    ]:
        requirement = Requirement(line)
        ours = requirement.name == project["name"]
        names |= declared(*requirement.extras) if ours else {installed_name(requirement.name)}
    return names


def installed_name(name):
    """A package's name in one spelling."""
    return re.sub(r"[-_.]+", "-", INSTALLED_AS.get(name, name)).lower()


def needed(*folders):
    """Names of the packages that the modules of some folders import."""
    ours = modules_of(house.REPOSITORY, *CODE, "tests")
    own = {name.partition(".")[0] for name in ours} | {name.rpartition(".")[2] for name in ours}
    tops = {each.imported.partition(".")[0] for each in imports_of(modules_of(house.REPOSITORY, *folders), ours)}
    return {installed_name(top) for top in tops - own - set(sys.stdlib_module_names) - NEVER_ASKED}


def test_all_that_is_imported_is_declared():
    extras = declared("mini", "report", "train", "runtime", "export", "serve")
    assert needed("transducer_gn", "egs", "local") - extras == set()
    assert needed("tests", "benchmarks") - declared("all") == set()


def test_a_missing_declaration_would_be_seen():
    assert {"torch", "kaldialign", "pyyaml", "espeakng-loader"} <= needed("transducer_gn")
    assert {"pytest", "kaldi-native-fbank"} <= needed("tests")
    assert "espeakng-loader" in declared("all") - declared()


def test_what_is_declared_is_pinned():
    lines = (house.REPOSITORY / "requirements.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"==[\w.+]+", str(pin.specifier)) for pin in pins)
    assert declared("all") - {installed_name(pin.name) for pin in pins} == set()
