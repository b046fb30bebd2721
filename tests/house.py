"""The measurable part of the house style: what to look at in a source file, and what is too much."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
MOST_FILE_LINES = 360
MOST_FUNCTION_LINES = 45
MOST_COLUMNS = 120
MOST_PARAMETERS = 7

# Words with two spellings, as they are spelt elsewhere (in brackets the letter that gives it away, so that this list
# does not find itself). Names that other programs define keep theirs: `tokenizer`, `torch.optim.Optimizer`, `color=`.
ELSEWHERE = (
    r"(?:generali|initiali|maximi|minimi|normali|optimi|organi|randomi|recogni|regulari|speciali|summari|utili)[z]\w*"
    r"|behavio[r]\w*|favo[r]\w*|neighbo[r]\w*|(?:label|model|cancel)(?:e[d]|in[g])\b|artifac[t]\w*|grays[c]ale"
)
SPELLING = re.compile(rf"(?<![\w.])_*(?!Optimizer\b)(?:{ELSEWHERE})(?!\w*[=(.])", re.IGNORECASE)
MACHINE_PATH = re.compile(r"(?<![\w.}])/(?:home|root|work|tmp|opt|Users|mnt|scratch)/\w+")

SECTION = re.compile(r"^( *)(Args|Attributes|Returns|Raises|Yields):\n((?:\1 +.*\n?)+)", re.MULTILINE)
OTHER_SECTION = re.compile(r"^ *(Arguments|Parameters|Params|Fields|Return|Result|Results|Yield):$", re.MULTILINE)
ONE_SENTENCE = re.compile(r"(?:[\w, ]+: )?[^.]+\.$")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def python_files(*folders: str) -> list[Path]:
    """The Python files below folders of the repository."""
    return [path for folder in folders for path in sorted((REPOSITORY / folder).rglob("*.py"))]


def text_files(*patterns: str) -> list[Path]:
    """Files of the repository that match a pattern such as `docs/*.md`."""
    return [path for pattern in patterns for path in sorted(REPOSITORY.glob(pattern)) if path.is_file()]


def place(path: Path, line: int) -> str:
    """How a finding names its place."""
    return f"{path.relative_to(REPOSITORY) if path.is_relative_to(REPOSITORY) else path.name}:{line}"


def oversized(path: Path) -> Iterator[str]:
    """What is too long or takes too much in a source file."""
    text = path.read_text()
    lines = len(text.splitlines())
    if lines > MOST_FILE_LINES:
        yield f"{place(path, 1)} has {lines} lines, more than {MOST_FILE_LINES}"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, Function):
            if (size := function_lines(node)) > MOST_FUNCTION_LINES:
                yield f"{place(path, node.lineno)} {node.name} has {size} lines, more than {MOST_FUNCTION_LINES}"
            if (count := len(parameters(node))) > MOST_PARAMETERS:
                yield f"{place(path, node.lineno)} {node.name} takes {count} parameters, more than {MOST_PARAMETERS}"


def wide_lines(path: Path) -> Iterator[str]:
    """Lines that do not fit beside another file."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if len(line) > MOST_COLUMNS:
            yield f"{place(path, number)} has {len(line)} columns, more than {MOST_COLUMNS}"


def function_lines(node: Function) -> int:
    """Lines of a function from `def` to its end, its docstring not counted."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node, clean=False) is not None:
        lines -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
    return lines


def parameters(node: Function) -> list[ast.arg]:
    """All parameters of a function but self, cls or the context of an autograd function."""
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args]
    if named and named[0].arg in ("self", "cls", "ctx"):
        named = named[1:]
    return [*named, *arguments.kwonlyargs, *filter(None, (arguments.vararg, arguments.kwarg))]


def undocumented(path: Path) -> Iterator[str]:
    """Public functions and classes without a docstring or without a type, and a file that does not say what it is."""
    tree = ast.parse(path.read_text())
    if ast.get_docstring(tree) is None:
        yield f"{place(path, 1)} does not open with a docstring"
    for node in _public(tree):
        # What `main` does is said at the head of its script.
        needs_words = not node.name.startswith("__") and node.name != "main"
        if needs_words and ast.get_docstring(node) is None:
            yield f"{place(path, node.lineno)} {node.name} has no docstring"
        if isinstance(node, Function):
            untyped = [each.arg for each in parameters(node) if each.annotation is None]
            untyped += ["its result"] if node.returns is None else []
            if untyped:
                yield f"{place(path, node.lineno)} {node.name} lacks a type: {', '.join(untyped)}"


def other_dialects(path: Path) -> Iterator[str]:
    """Docstrings whose sections are named, indented or ended otherwise than in the rest of the house."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, Function | ast.ClassDef | ast.Module) or not (text := ast.get_docstring(node)):
            continue
        where = place(path, getattr(node, "lineno", 1))
        yield from (f"{where} has a section {found[1]}" for found in OTHER_SECTION.finditer(text))
        for section in SECTION.finditer(text):
            body = section[3].splitlines()
            if len(body[0]) - len(body[0].lstrip()) != len(section[1]) + 4:
                yield f"{where} does not indent {section[2]} by 4"
            if section[2] == "Args" and any("dataclass" in ast.unparse(each) for each in decorators(node)):
                yield f"{where} is a dataclass, whose fields are Attributes"
            entries = [" ".join(map(str.strip, body))] if section[2] in ("Returns", "Yields") else one_liners(body)
            for entry in filter(ONE_SENTENCE.fullmatch, entries):
                yield f"{where} ends one sentence with a full stop: {entry}"


def one_liners(body: list[str]) -> list[str]:
    """Entries of a section that take one line."""
    indent = len(body[0]) - len(body[0].lstrip())
    starts = [len(line) - len(line.lstrip()) == indent for line in body] + [True]
    return [line.strip() for index, line in enumerate(body) if starts[index] and starts[index + 1]]


def decorators(node: ast.AST) -> list[ast.expr]:
    """Decorators of a function or class."""
    return getattr(node, "decorator_list", [])


def _public(node: ast.Module | ast.ClassDef) -> Iterator[Function | ast.ClassDef]:
    """Functions and classes that others may use: not named with an underscore, nor inside of what is."""
    for child in node.body:
        if isinstance(child, Function | ast.ClassDef) and (not child.name.startswith("_") or child.name[:2] == "__"):
            yield child
            if isinstance(child, ast.ClassDef):
                yield from _public(child)


def misspelt(path: Path) -> Iterator[str]:
    """Words spelt otherwise than in the rest of the house."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for word in SPELLING.finditer(line):
            yield f"{place(path, number)} {word[0]}"


def machine_paths(path: Path) -> Iterator[str]:
    """Paths that exist on somebody's machine only."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for found in MACHINE_PATH.finditer(line):
            yield f"{place(path, number)} {found[0]}"
