"""Invariant: the mutation tester makes the faults it names and no others, and tells a fault that a test finds from one
that no test finds.
"""

import random
from pathlib import Path

import pytest
from mutants import mutants_of, sample
from mutations import Bench, read_results, table
from reach import nearest_tests


def faults(folder: Path, text: str) -> set[tuple[str, str]]:
    """(kind, whole text) of all mutants of a file."""
    path = folder / "module.py"
    path.write_text(text)
    return {(each.kind, each.applied(path.read_bytes()).decode()) for each in mutants_of(folder, path)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = a < b", {("comparison", "x = (a <= b)"), ("comparison", "x = (a >= b)")}),
        ("x = a is None", {("comparison", "x = (a is not None)")}),
        ("x = a + b", {("operator", "x = (a - b)")}),
        ("x *= y", {("operator", "x /= y")}),
        ("x = a and b", {("and/or", "x = (a or b)")}),
        ("x = not a", {("dropped not", "x = (a)")}),
        ("x = ~a", {("dropped ~", "x = (a)")}),
        ("x = -a", {("dropped minus", "x = (a)")}),
        ("x = 3", {("constant", "x = 4"), ("constant", "x = 2")}),
        ("x = True", {("constant", "x = False")}),
        ("x = max(a, b)", {("min/max", "x = (min(a, b))")}),
        ("x = y.amax(d)", {("min/max", "x = (y.amin(d))")}),
        ("x = y.clamp(min=a)", {("min/max", "x = (y.clamp(max=a))")}),
        ("x = f(a, b, c)", {("swapped arguments", "x = (f(b, a, c))")}),
        ("f()", {("removed call", "pass")}),
        ("def f():\n    return x", {("returned nothing", "def f():\n    return None")}),
        ("if a:\n    b = c", {("negated condition", "if (not (a)):\n    b = c")}),
        ("é = 'ü'; x = a + b", {("operator", "é = 'ü'; x = (a - b)")}),
        ("def f(x: Literal[1]) -> Literal[2]:\n    '''Three 3.'''\n    raise ValueError(f'{4}')", set()),
        ("logging.info('a', 1 + 1)", set()),
        ("import a\nfrom b import c", set()),
    ],
)
def test_faults_of_each_kind(tmp_path, text, expected):
    assert faults(tmp_path, text) == expected


def test_a_sample_depends_on_its_seed_alone_and_takes_packages_in_turn(tmp_path):
    mutants = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "module.py").write_text("".join(f"x{i} = {i}\n" for i in range(10 if name == "a" else 40)))
        mutants += mutants_of(tmp_path, tmp_path / name / "module.py")
    drawn = sample(mutants, 20, seed=3)
    random.seed(1)
    assert sample(mutants, 20, seed=3) == drawn != sample(mutants, 20, seed=4)
    assert sum(each.path.startswith("a/") for each in drawn) == 10
    assert len({(each.path, each.line) for each in drawn}) == 20
    assert len(sample(mutants, 1000, seed=0)) == 50


@pytest.fixture
def tree(tmp_path):
    """A tree with one module, a test that reaches it over another module, and one that does not reach it."""
    files = {
        "transducer_gn/__init__.py": "",
        "transducer_gn/core.py": "def double(x):\n    return x + x\n\n\n"
        "def wait(x):\n    while x > 0:\n        x -= 1\n",
        "transducer_gn/outer.py": "from transducer_gn.core import double, wait\n",
        "tests/test_outer.py": "from transducer_gn.outer import double, wait\n\n\n"
        "def test_double():\n    wait(3)\n    assert double(0) == 0\n",
        "tests/test_other.py": "def test_nothing():\n    pass\n",
    }
    for name, text in files.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "tree"


def test_only_tests_that_reach_the_module_are_run(tree):
    assert nearest_tests(tree, "transducer_gn/core.py") == ["tests/test_outer.py"]


def test_outcomes(tree, tmp_path, monkeypatch):
    monkeypatch.setattr("mutations.SECONDS_MORE", 2)
    bench = Bench(tree)
    bench.add_copy(tmp_path / "copy")
    path = tree / "transducer_gn" / "core.py"
    mutants = {each.after: each for each in mutants_of(tree, path)}
    wanted = {"(x - x)": "survived", "return None": "killed", "x += 1": "timed out"}
    results = [bench.try_mutant(mutants[after], ["tests/test_outer.py"]) for after in wanted]
    assert [each["outcome"] for each in results] == list(wanted.values())
    assert [each["by"] for each in results] == ["", "tests/test_outer.py", "tests/test_outer.py"]
    assert (tmp_path / "copy" / "transducer_gn" / "core.py").read_bytes() == path.read_bytes()
    lines = list(table(results))
    assert lines[0].split() == "transducer_gn 2 of 3 found (66.7 %), 1 of them timed out".split()
    assert lines[2].startswith("survived: transducer_gn/core.py:2:11 operator -> (x - x)")


def test_a_tree_whose_tests_fail_is_refused(tree, tmp_path):
    (tree / "tests" / "test_outer.py").write_text("def test_outer():\n    assert False\n")
    bench = Bench(tree)
    bench.add_copy(tmp_path / "copy")
    mutant = mutants_of(tree, tree / "transducer_gn" / "core.py")[0]
    with pytest.raises(SystemExit, match="tests/test_outer.py fails without any mutant"):
        bench.try_mutant(mutant, ["tests/test_outer.py"])


def test_results_are_gone_on_with_and_survivors_tried_again(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text('{"mutant": "a", "outcome": "survived"}\n{"mutant": "b", "outcome": "killed"}\n')
    assert set(read_results(path, again=False)) == {"a", "b"}
    assert set(read_results(path, again=True)) == {"b"}
    assert read_results(tmp_path / "none.jsonl", again=False) == {}
