"""Invariant: the mutation tester makes the faults it names and no others, and tells a fault that a test finds from one
that no test finds.
"""

import random
from pathlib import Path

import pytest
from executed import Executed, executing_tests, place_of
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
        ("x = f(a, b, strict=True)", {("swapped arguments", "x = (f(b, a, strict=True))")}),
        ("x = torch.add(a, b, out=c)", set()),
        ("f()", {("removed call", "pass")}),
        ("def f():\n    return x", {("returned nothing", "def f():\n    return None")}),
        ("if a:\n    b = c", {("negated condition", "if (not (a)):\n    b = c")}),
        ("é = 'ü'; x = a + b", {("operator", "é = 'ü'; x = (a - b)")}),
        ("def f(x: Literal[1]) -> Literal[2]:\n    '''Three 3.'''\n    raise ValueError(f'{4}')", set()),
        ("logging.info('a', 1 + 1)", set()),
        ("logging.getLogger('a').setLevel(1)", set()),
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


CORE = """def double(x):
    return x + x


def wait(x):
    while x > 0:
        x -= 1

def shared():
    return 1

def main():
    print(
        shared
    )
"""
OUTER = """import subprocess, sys
import pytest
from transducer_gn.outer import double, shared, wait

@pytest.fixture(scope="module")
def made():
    return shared()

def test_double():
    assert double(0) == 0

def test_wait():
    wait(3)

def test_shared_first(made):
    assert made == 1

def test_shared_second(made):
    assert made == 1

def test_program():
    subprocess.run([sys.executable, "-c", "from transducer_gn.core import main; main()"], check=True)

def test_failing():
    assert double(1) == 0
"""


@pytest.fixture
def tree(tmp_path):
    """A tree with one module, tests that reach it over another module, and one that does not reach it."""
    files = {
        "transducer_gn/__init__.py": "",
        "transducer_gn/core.py": CORE,
        "transducer_gn/outer.py": "from transducer_gn.core import double, shared, wait\n",
        "tests/test_outer.py": OUTER,
        "tests/test_other.py": "def test_nothing():\n    pass\n",
    }
    for name, text in files.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "tree"


def test_only_tests_that_reach_the_module_are_run(tree):
    assert nearest_tests(tree, "transducer_gn/core.py") == ["tests/test_outer.py"]


def watched(tree, tmp_path):
    """A bench with one copy of the tree, whose tests were watched."""
    bench = Bench(tree)
    bench.add_copy(tmp_path / "copy")
    (tmp_path / "kept").mkdir()
    for test in sorted((tree / "tests").glob("test_*.py")):
        bench.watch(f"tests/{test.name}", ["transducer_gn"], tmp_path / "kept")
    return bench


@pytest.fixture
def bench(tree, tmp_path):
    return watched(tree, tmp_path)


def test_outcomes(bench, monkeypatch):
    path = bench.root / "transducer_gn" / "core.py"
    mutants = {(each.line, each.after): each for each in mutants_of(bench.root, path)}
    wanted = {(2, "(x - x)"): "survived", (2, "return None"): "killed", (7, "x += 1"): "timed out"}
    results = []
    for each, outcome in wanted.items():
        # Whoever must be waited for is not waited for as long; and yet a busy machine must be able to do the work.
        monkeypatch.setattr("mutations.SECONDS_MORE", 15 if outcome == "timed out" else 120)
        results.append(bench.try_mutant(mutants[each], bench.batches(mutants[each], 60, 1)))
    assert [each["outcome"] for each in results] == list(wanted.values())
    assert [each["by"] for each in results] == [
        "",
        "tests/test_outer.py::test_double",
        "tests/test_outer.py::test_wait",
    ]
    copy = bench.copies.get()
    assert (copy / "transducer_gn" / "core.py").read_bytes() == path.read_bytes()
    lines = list(table(results))
    assert lines[0].split() == "transducer_gn 2 of 3 found (66.7 %), 1 of them timed out".split()
    assert lines[2].startswith("survived: transducer_gn/core.py:2:11 operator -> (x - x)")


def test_a_test_that_fails_without_the_mutant_kills_none(tree, tmp_path):
    name = "tests/test_other.py::test_only_once"
    (tree / "tests" / "test_other.py").write_text("def test_only_once():\n    open('mark', 'x')\n")
    bench = watched(tree, tmp_path)
    assert bench.executed[name].passed
    mutant = mutants_of(tree, tree / "transducer_gn" / "core.py")[0]
    assert bench.try_mutant(mutant, [[name]])["outcome"] == "survived"
    assert not bench.executed[name].passed


def test_each_line_knows_its_tests(bench):
    """Those that execute it themselves, through a fixture that they share, or in a process of their own."""
    executed = {name.partition("::")[2]: each.lines for name, each in bench.executed.items()}
    lines = {test: each.get("transducer_gn/core.py", []) for test, each in executed.items()}
    shared, program, wait = [10], [1, 5, 9, 12, 13, 14], [6, 7]
    assert lines == {
        "test_double": [2],
        "test_wait": wait,
        "test_shared_first": shared,
        "test_shared_second": shared,
        "test_program": program,
        "test_nothing": [],
        "test_failing": [2],
    }
    assert [name for name, each in bench.executed.items() if not each.passed] == ["tests/test_outer.py::test_failing"]


def test_a_changed_test_file_is_watched_again(bench, tmp_path):
    path = bench.root / "tests" / "test_other.py"
    path.write_text("def test_something():\n    pass\n")
    bench.add_copy(tmp_path / "second")
    bench.copies.get()
    for _ in range(2):
        bench.watch("tests/test_other.py", ["transducer_gn"], tmp_path / "kept")
    assert "tests/test_other.py::test_something" in bench.executed
    assert len(list((tmp_path / "kept").glob("tests+test_other.py-*"))) == 2


@pytest.mark.parametrize(
    ("line", "expected", "at_import"),
    [
        (1, range(1, 2), True),
        (4, range(3, 5), True),
        (5, range(5, 7), False),
        (6, range(5, 7), False),
        (8, range(7, 9), False),
        (9, range(9, 10), False),
        (10, range(10, 12), False),
        (12, range(12, 13), True),
    ],
)
def test_place_of_a_fault(line, expected, at_import):
    text = """A = 1
class C:
    def f(self,
          a=2):
        if (a and
                a):
            b = [a,
                 2]
            return b
        return (a,
                1)
    c = 3
"""
    assert place_of(text, line) == (expected, at_import)


def test_tests_of_a_line_are_the_quickest_first_and_own_ones_early():
    path = "transducer_gn/core.py"
    executed = {
        "tests/test_b.py::slow": Executed(9.0, True, {path: [5]}),
        "tests/test_core.py::own": Executed(9.0, True, {path: [5]}),
        "tests/test_b.py::quick": Executed(2.0, True, {path: [5]}),
        "tests/test_b.py::failing": Executed(1.0, False, {path: [5]}),
        "tests/test_b.py::elsewhere": Executed(1.0, True, {path: [4]}),
    }
    text = "x = 1\n\ndef f():\n    y = 2\n    return y\n"
    passing = [name for name in executed if "failing" not in name]
    assert [name.partition("::")[2] for name in executing_tests(executed, text, path, 5)] == ["quick", "own", "slow"]
    assert sorted(executing_tests(executed, text, path, 1)) == sorted(passing)


def test_results_are_gone_on_with_and_survivors_tried_again(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text('{"mutant": "a", "outcome": "survived"}\n{"mutant": "b", "outcome": "killed"}\n')
    assert set(read_results(path, again=False)) == {"a", "b"}
    assert set(read_results(path, again=True)) == {"b"}
    assert read_results(tmp_path / "none.jsonl", again=False) == {}
