"""Which tests execute which lines: recorded once for each test file, so that a mutant meets only tests that notice it.

What a fixture of a wider scope executes counts for all tests that ask for it, and what a program that a test starts
executes counts for that test. What importing a module executes in the process of the tests counts for none.
"""

import ast
import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import coverage
import pytest

# A test of the module's own test file is taken before others that are so many times as quick.
OWN_FIRST = 4


@dataclass
class Executed:
    """What one test did when no mutant was there.

    Attributes:
        seconds: it took, with all that its fixtures take
        passed: whether it passed; skipped ones did not
        lines: those that it executed, by file
    """

    seconds: float = 0.0
    passed: bool = False
    lines: dict[str, list[int]] = field(default_factory=dict)


class Recorder:
    """A plugin of pytest that records every test of one run.

    Args:
        root: the tree
        packages: folders in it whose lines are of interest
        scratch: an empty folder for what programs that tests start record
    """

    def __init__(self, root: Path, packages: Iterable[str], scratch: Path) -> None:
        self._root, self._scratch = root.resolve(), scratch
        self._include = [f"{self._root / package}/*" for package in packages]
        self._coverage = coverage.Coverage(data_file=None, include=self._include, config_file=False)
        self._asked: dict[str, set[str]] = {}
        self._seconds: dict[str, float] = {}
        self._passed: set[str] = set()
        self._test = ""

    def pytest_sessionstart(self) -> None:
        settings = self._scratch / "settings"
        # A program notes as context the test that has started it: pytest keeps its name in the environment.
        names = ("[run]", "parallel = true", f"data_file = {self._scratch / 'lines'}", "patch = _exit")
        include = "".join(f"\n    {pattern}" for pattern in self._include)
        settings.write_text("\n".join((*names, "context = ${PYTEST_CURRENT_TEST-}", f"include ={include}", "")))
        os.environ["COVERAGE_PROCESS_START"] = str(settings)
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._test = item.nodeid
        self._asked[item.nodeid] = {f"fixture {name}" for name in getattr(item, "fixturenames", ())}
        return (yield from self._timed(item.nodeid, ""))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        return (yield from self._timed(f"fixture {fixturedef.argname}", self._test))

    def _timed(self, inner: str, outer: str) -> Iterator[None]:
        """Count time and lines for `inner` now, for `outer` afterwards."""
        begin = time.monotonic()
        self._coverage.switch_context(inner)
        try:
            return (yield)
        finally:
            self._coverage.switch_context(outer)
            passed = time.monotonic() - begin
            self._seconds[inner] = self._seconds.get(inner, 0.0) + passed
            self._seconds[outer] = self._seconds.get(outer, 0.0) - passed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._passed.add(report.nodeid)
        elif report.failed:
            self._passed.discard(report.nodeid)

    def result(self) -> dict[str, Executed]:
        """What each test did, by its name; to be asked for when pytest is done."""
        self._coverage.stop()
        recorded = [self._coverage.get_data()]
        for path in self._scratch.glob("lines.*"):
            recorded.append(coverage.CoverageData(str(path)))
            recorded[-1].read()
        by_context: dict[str, dict[str, set[int]]] = {}
        for data in recorded:
            for path in data.measured_files():
                for line, contexts in data.contexts_by_lineno(path).items():
                    for context in contexts:
                        lines = by_context.setdefault(context, {})
                        lines.setdefault(str(Path(path).relative_to(self._root)), set()).add(line)
        return {name: self._executed(name, by_context) for name in self._asked}

    def _executed(self, name: str, by_context: dict[str, dict[str, set[int]]]) -> Executed:
        asked = [each for each in self._asked[name] if each in self._seconds]
        seconds = self._seconds[name] + sum(self._seconds[each] for each in asked)
        # A program that a fixture has started may be meant for any of the tests.
        of_programs = [each for each in by_context if each in (f"{name} (call)", f"{name} (teardown)")]
        of_programs += [each for each in by_context if each.endswith(" (setup)")]
        lines: dict[str, set[int]] = {}
        for context in [name, *asked, *of_programs]:
            for path, executed in by_context.get(context, {}).items():
                lines.setdefault(path, set()).update(executed)
        return Executed(seconds, name in self._passed, {path: sorted(each) for path, each in lines.items()})


def write_executed(path: Path, executed: dict[str, Executed]) -> None:
    """Keep what the tests of one file did."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps({name: asdict(each) for name, each in executed.items()}))
    part.replace(path)


def read_executed(path: Path) -> dict[str, Executed]:
    """What `write_executed` has kept."""
    return {name: Executed(**each) for name, each in json.loads(path.read_text()).items()}


def place_of(text: str, line: int) -> tuple[range, bool]:
    """The lines of the innermost statement at a line, without a body that it has; whether importing executes them."""
    statement, at_import = range(line, line + 1), True
    nodes: list[ast.AST] = [ast.parse(text)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.stmt | ast.excepthandler) and node.lineno <= line <= (node.end_lineno or line):
            body = getattr(node, "body", [])
            last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or line
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if line <= last:
                statement = range(node.lineno, last + 1)
            elif is_function:
                at_import = False
            nodes = []
        nodes.extend(ast.iter_child_nodes(node))
    return statement, at_import


def executing_tests(executed: dict[str, Executed], text: str, path: str, line: int) -> list[str]:
    """Tests that execute a line of a file, or any of it if importing executes the line; quickest first, own ones early.

    Args:
        executed: by test
        text: of the file
        path: of the file, relative to the tree
        line: of the fault
    """
    statement, at_import = place_of(text, line)
    own = re.compile(rf"(^|/)test_{re.escape(Path(path).stem)}\.py::")
    found = []
    for name, each in executed.items():
        lines = each.lines.get(path, [])
        if each.passed and (lines if at_import else not set(statement).isdisjoint(lines)):
            found.append((each.seconds / (OWN_FIRST if own.search(name) else 1), name))
    return [name for _, name in sorted(found)]
