"""Invariant: of what a manifest says besides, group, unit and stretches of time are understood, and nothing else."""

import ast
import re
from pathlib import Path

import pytest

import transducer_gn
from transducer_gn.data.labels import at_speed, group_of, group_order, time_spans, unit_of

PACKAGE = Path(transducer_gn.__file__).parent
# What only the mini corpus has. Two of these are also ordinary English words; as names of fields they are meant.
MEANT = re.compile(r"twins?|blend(s|ed|ing)?|settling|ambiguous", re.IGNORECASE)
FIELDS = ("pair", "control")
# Where the mini corpus lives, its settings, and the commands that hand over what it adds.
AT_HOME = ("synthetic/", "commands/", "config/synthetic.py")


@pytest.mark.parametrize("custom", [{}, {"kind": ""}, {"kind": None, "other": 1}])
def test_an_utterance_without_a_group_is_ordinary(custom):
    assert group_of(custom) == "ordinary"
    assert group_of(custom | {"kind": "noisy"}) == "noisy"


def test_utterances_with_the_same_sound_have_the_same_unit():
    assert unit_of("b", {"twin": "a"}) == unit_of("a", {"twin": "b"}) == "a"
    assert unit_of("b", {}) == unit_of("b", {"twin": None}) == unit_of("b", {"twin": ""}) == "b"


def test_the_default_group_comes_first():
    assert sorted(["z", "ordinary", "a"], key=group_order) == ["ordinary", "a", "z"]


def test_two_numbers_are_a_stretch_of_time_that_moves_with_the_speed():
    custom = {"a": [1.0, 3], "words": ["A", "B"], "one": [1.0], "three": [1, 2, 3], "flags": [True, False], "n": 5}
    assert time_spans(custom) == {"a": (1.0, 3)}
    assert at_speed(custom, 1.1) == custom | {"a": [0.9091, 2.7273]}


def sayings(path: Path) -> list[str]:
    """Words of a module that only the mini corpus has."""
    text = path.read_text(encoding="utf-8")
    found = [match[0] for match in re.finditer(r"[A-Za-z]+", text) if MEANT.fullmatch(match[0])]
    for node in ast.walk(ast.parse(text)):
        name = node.value if isinstance(node, ast.Constant) else getattr(node, "attr", getattr(node, "arg", None))
        found += [name] if name in FIELDS else []
    return found


def test_nothing_but_the_mini_corpus_knows_the_mini_corpus():
    said = {
        str(path.relative_to(PACKAGE)): words
        for path in PACKAGE.rglob("*.py")
        if not str(path.relative_to(PACKAGE)).startswith(AT_HOME) and (words := sayings(path))
    }
    # The name of a field on disk, once.
    assert said == {"data/labels.py": ["twin"]}


def test_what_the_mini_corpus_says_would_be_found():
    assert {"twin", "pair", "blend", "settling"} <= set(sayings(PACKAGE / "synthetic" / "mini_corpus.py"))
