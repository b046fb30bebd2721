"""Who imports whom, read from the source without running it: a line under TYPE_CHECKING or in a function counts too."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Import:
    """One module naming another.

    Attributes:
        importer: dotted name of the module in which the line stands
        imported: dotted name of what it names: a module of the tree where there is one, else as the line has it
        line: its number
    """

    importer: str
    imported: str
    line: int

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


def modules_of(root: Path, *folders: str) -> dict[str, Path]:
    """The modules below `root`/`folders` (below `root` itself if none are named), by dotted name."""
    found = {}
    for folder in folders or (".",):
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(modules: Mapping[str, Path], known: Mapping[str, Path] | None = None) -> list[Import]:
    """All imports of `modules`; a name is resolved to a module where it is one of `known` (`modules` if None)."""
    known = modules if known is None else known
    found = (
        Import(name, _resolved(target, known), line)
        for name, path in modules.items()
        for target, line in _named(ast.parse(path.read_text(), str(path)), name, path.name == "__init__.py")
    )
    return list(dict.fromkeys(found))


def _named(tree: ast.Module, name: str, is_package: bool) -> Iterator[tuple[str, int]]:
    """What a module's lines name, as deep as they do, and the lines' numbers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = name.split(".") if is_package else name.split(".")[:-1]
                kept = package[: len(package) - (node.level - 1)]
                base = ".".join([*kept, *([node.module] if node.module else [])])
            yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.Call) and _is_import_call(node.func) and node.args:
            argument = node.args[0]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield argument.value, node.lineno


def _is_import_call(function: ast.expr) -> bool:
    """Whether a call is `import_module(...)`, `importlib.import_module(...)` or `__import__(...)`."""
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("import_module", "__import__")


def _resolved(target: str, known: Mapping[str, Path]) -> str:
    """The module that `a.b.c` means: itself, or `a.b` if c is a name in it; what is not of the tree stays."""
    shorter = target
    while shorter:
        if shorter in known:
            return shorter
        shorter = shorter.rpartition(".")[0]
    return target


def find_cycle(graph: Mapping[str, set[str]]) -> list[str]:
    """Names along one cycle of a graph, the first again at the end; empty if there is none."""
    finished: set[str] = set()

    def visit(node: str, trail: list[str]) -> list[str]:
        if node in trail:
            return [*trail[trail.index(node) :], node]
        if node in finished:
            return []
        for neighbour in sorted(graph.get(node, ())):
            if cycle := visit(neighbour, [*trail, node]):
                return cycle
        finished.add(node)
        return []

    return next((cycle for node in sorted(graph) if (cycle := visit(node, []))), [])
