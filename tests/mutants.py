"""Mutants: copies of a source file with one small fault each, such as a programmer might make.

Faults are made in the text, at the place of a node of the syntax tree, so that everything else stays as it was.
Docstrings, annotations, messages of errors and logging are left alone: no test should depend on them. So are
assertions, among them `zip(..., strict=True)`: they change nothing as long as the program is right.
"""

import ast
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.MatMult: ast.Mult,
}
EXTREMES = {"min": "max", "max": "min", "amin": "amax", "amax": "amin", "argmin": "argmax", "argmax": "argmin"}
EXTREMES |= {"minimum": "maximum", "maximum": "minimum"}
# Functions whose arguments may be swapped.
SYMMETRIC = ("add", "logaddexp", "mul")
LOGGING = ("log", "logger", "logging", "print", "warnings")


@dataclass(frozen=True)
class Mutant:
    """One fault in one file.

    Attributes:
        path: the file, relative to the root of the tree
        line: number of the line on which the fault begins
        column: where in the line, in bytes
        end: byte after the last one that is replaced, counted from the file's start
        start: first byte that is replaced, counted likewise
        kind: what was done, in a word or two
        after: the text that takes the place
        source: the line as it was
    """

    path: str
    line: int
    column: int
    start: int
    end: int
    kind: str
    after: str
    source: str

    @property
    def name(self) -> str:
        """What tells this mutant from all others of the same sources."""
        return f"{self.path}:{self.line}:{self.column} {self.kind} -> {self.after}"

    def applied(self, text: bytes) -> bytes:
        """The file's text with the fault in it."""
        return text[: self.start] + self.after.encode() + text[self.end :]


def sample(mutants: list[Mutant], number: int, seed: int) -> list[Mutant]:
    """So many mutants at places drawn by a seed, evenly from all packages; of the faults possible at a place, one."""
    generator = random.Random(seed)
    packages: dict[str, dict[tuple[str, int, int], list[Mutant]]] = {}
    for mutant in mutants:
        places = packages.setdefault(str(Path(mutant.path).parent), {})
        places.setdefault((mutant.path, mutant.start, mutant.end), []).append(mutant)
    drawn = []
    for places in packages.values():
        order = sorted(places)
        generator.shuffle(order)
        drawn.append([generator.choice(places[place]) for place in order])
    in_turn = itertools.chain.from_iterable(itertools.zip_longest(*drawn))
    return list(itertools.islice((mutant for mutant in in_turn if mutant is not None), number))


def mutants_of(root: Path, path: Path) -> list[Mutant]:
    """All mutants of a file, in the order of its text."""
    text = path.read_bytes()
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    found, original = [], ast.dump(ast.parse(text))
    for node, kind, after in _faults(ast.parse(text)):
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        source = lines[node.lineno - 1].decode().strip()
        place = str(path.relative_to(root)), node.lineno, node.col_offset
        mutant = Mutant(*place, start, end, kind, after, source)
        if _is_other_program(mutant.applied(text), original):
            found.append(mutant)
    return sorted(set(found), key=lambda each: (each.start, each.kind, each.after))


def _is_other_program(text: bytes, original: str) -> bool:
    """Whether a text parses, and as something else than the original, whose syntax tree is given."""
    try:
        return ast.dump(ast.parse(text)) != original
    except SyntaxError:
        return False


def _faults(tree: ast.Module) -> Iterator[tuple[ast.expr | ast.stmt, str, str]]:
    """(node to replace, kind, replacement) of every fault."""
    for node in _program(tree):
        if isinstance(node, ast.expr):
            yield from ((node, kind, f"({ast.unparse(after)})") for kind, after in _expressions(node))
            yield from ((node, kind, ast.unparse(after)) for kind, after in _constants(node))
        elif isinstance(node, ast.stmt):
            yield from ((node, kind, after) for kind, after in _statements(node))
        if isinstance(node, ast.If | ast.IfExp | ast.While) and not isinstance(node.test, ast.UnaryOp):
            yield node.test, "negated condition", f"(not ({ast.unparse(node.test)}))"


def _program(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that do something: no docstrings, annotations, messages or logging."""
    yield node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_talk(child):
                yield from _program(child)


def _is_talk(node: ast.AST) -> bool:
    """Whether a node is only for readers: a docstring, an error, an assertion, a line for the log, an import."""
    if isinstance(node, ast.keyword):
        return node.arg == "strict"
    if isinstance(node, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom | ast.JoinedStr):
        return True
    if not isinstance(node, ast.Expr):
        return False
    call = node.value
    if not isinstance(call, ast.Call):
        return isinstance(call, ast.Constant)
    function = call.func
    while isinstance(function, ast.Attribute | ast.Call):
        function = function.value if isinstance(function, ast.Attribute) else function.func
    return isinstance(function, ast.Name) and function.id in LOGGING


def _expressions(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """(kind, replacement) of the faults that an expression as a whole can have."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for other in COMPARISONS[type(node.ops[0])]:
            yield "comparison", ast.Compare(node.left, [other()], node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        yield "operator", ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        other_op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "and/or", ast.BoolOp(other_op, node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert | ast.USub):
        yield "dropped " + {ast.Not: "not", ast.Invert: "~", ast.USub: "minus"}[type(node.op)], node.operand
    elif isinstance(node, ast.Call):
        yield from _calls(node)


def _calls(node: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """(kind, replacement) of a call of the opposite function, with the opposite bound, or with swapped arguments."""
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name in EXTREMES:
        other = EXTREMES[name]
        changed = ast.Attribute(function.value, other) if isinstance(function, ast.Attribute) else ast.Name(other)
        yield "min/max", ast.Call(changed, node.args, node.keywords)
    elif (
        len(node.args) >= 2
        and name not in SYMMETRIC
        and not any(isinstance(each, ast.Starred) for each in node.args[:2])
    ):
        yield "swapped arguments", ast.Call(function, [node.args[1], node.args[0], *node.args[2:]], node.keywords)
    for index, keyword in enumerate(node.keywords):
        if name.startswith("clamp") and keyword.arg in ("min", "max"):
            bound = ast.keyword(EXTREMES[keyword.arg], keyword.value)
            yield "min/max", ast.Call(function, node.args, [*node.keywords[:index], bound, *node.keywords[index + 1 :]])


def _constants(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """(kind, replacement) of a constant that is off by one or of the other truth."""
    if not isinstance(node, ast.Constant):
        return
    if isinstance(node.value, bool):
        yield "constant", ast.Constant(not node.value)
    elif isinstance(node.value, int | float):
        yield "constant", ast.Constant(node.value + 1)
        yield "constant", ast.Constant(node.value - 1)


def _statements(node: ast.stmt) -> Iterator[tuple[str, str]]:
    """(kind, replacement) of the faults that a statement can have."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "removed call", "pass"
    elif isinstance(node, ast.Return) and node.value is not None:
        is_none = isinstance(node.value, ast.Constant) and node.value.value is None
        if not is_none:
            yield "returned nothing", "return None"
    elif isinstance(node, ast.AugAssign) and type(node.op) in OPERATORS:
        yield "operator", ast.unparse(ast.AugAssign(node.target, OPERATORS[type(node.op)](), node.value))
    elif isinstance(node, ast.Break):
        yield "no break", "continue"
    elif isinstance(node, ast.Continue):
        yield "no continue", "break"
