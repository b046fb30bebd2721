"""Which test files reach a module through their imports and fixtures, and over how many steps."""

import ast
import functools
from pathlib import Path

from import_graph import imports_of, modules_of

# Plugins of tests/conftest.py: a test file reaches one only if it asks for a fixture of it.
PLUGINS = ("prepared_corpus", "shared_runs")


def nearest_tests(root: Path, path: str) -> list[str]:
    """Test files that reach the module at `path`, its own first, then those of its folder, then the nearest."""
    module = Path(path)
    target = ".".join(module.with_suffix("").parts).removesuffix(".__init__")
    graph, tests = _graph(root)
    found = []
    for name, test in tests.items():
        if (steps := _steps(graph, name, target)) is not None:
            other_name = test.stem != f"test_{module.stem}"
            other_folder = test.parent.name != module.parent.name
            found.append((other_name, other_folder, steps, str(test.relative_to(root))))
    return [test for *_, test in sorted(found)]


@functools.cache
def _graph(root: Path) -> tuple[dict[str, set[str]], dict[str, Path]]:
    """Who reaches whom in one step, of the package, the scripts and the tests; and the test files by name."""
    modules = modules_of(root, "transducer_gn", "egs", "local", "benchmarks", "tests")
    # Tests and benchmarks import their neighbours by bare name.
    bare = {path.stem: path for folder in ("tests", "benchmarks") for path in (root / folder).glob("*.py")}
    named = {path: name for name, path in modules.items()}
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for each in imports_of(modules, modules | bare):
        imported = named[bare[each.imported]] if each.imported in bare else each.imported
        graph[each.importer].add(imported)
    tests = {name: path for name, path in modules.items() if path.stem.startswith("test_")}
    for name, path in tests.items():
        graph[name] |= _given(root, path, named)
    return graph, tests


def _given(root: Path, test: Path, named: dict[Path, str]) -> set[str]:
    """What a test file reaches without importing it: fixtures that it asks for, scripts whose names it writes."""
    text = test.read_text()
    asked = {
        argument.arg for node in ast.walk(ast.parse(text)) if isinstance(node, ast.arguments) for argument in node.args
    }
    given = {named[test.parent / "conftest.py"]} if (test.parent / "conftest.py") in named else set()
    given |= {f"tests.{plugin}" for plugin in PLUGINS if asked & _fixtures(root / "tests" / f"{plugin}.py")}
    scripts = [path for path in named if path.is_relative_to(root / "egs") or path.is_relative_to(root / "local")]
    return given | {named[path] for path in scripts if path.name in text}


@functools.cache
def _fixtures(path: Path) -> frozenset[str]:
    """Names of the fixtures that a file defines."""
    if not path.is_file():
        return frozenset()
    functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
    return frozenset(each.name for each in functions if any("fixture" in ast.unparse(d) for d in each.decorator_list))


def _steps(graph: dict[str, set[str]], start: str, target: str) -> int | None:
    """Length of the shortest way through the graph; None if there is none."""
    seen, edge, steps = {start}, {start}, 0
    while edge:
        if target in edge:
            return steps
        edge = {following for node in edge for following in graph.get(node, ())} - seen
        seen |= edge
        steps += 1
    return None
