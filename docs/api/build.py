#!/usr/bin/env python3
"""Build the API pages from the docstrings: docs/api/build.py writes docs/api/html/index.html. Warnings are errors.

Beside pdoc's own warnings (a module that does not import, an annotation that cannot be read), an entry of `Args:` or
`Attributes:` that is no parameter or field is one, and so is a name of this package, in backticks, that is not there.
"""

import argparse
import importlib.util
import inspect
import pkgutil
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pdoc
import pdoc.doc
import pdoc.render

PACKAGE = "transducer_gn"
HERE = Path(__file__).resolve().parent
SECTION = re.compile(r"^(Args|Attributes):\n((?:[ ]+.*\n?|\n)+)", re.MULTILINE)


def build(package: str, folder: Path) -> list[str]:
    """Write the pages of a package into a folder; gives the warnings."""
    pdoc.render.configure(docformat="google", footer_text=package, search=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # All modules by name: left to itself, pdoc leaves out those that a package's __all__ does not have. Most come
        # twice then, as its first kind of warning says.
        names = [package, *(each.name for each in pkgutil.walk_packages(paths(package), f"{package}."))]
        pdoc.pdoc(*names, output_directory=folder)
        modules = [pdoc.doc.Module(sys.modules[name]) for name in names]
        ours = [problem for module in modules for problem in problems(module, package)]
    texts = dict.fromkeys(str(each.message) for each in caught if "pdoc" in Path(each.filename).parts)
    return [text for text in texts if not text.startswith("The module specification")] + ours


def paths(package: str) -> list[str]:
    """Folders of a package."""
    spec = importlib.util.find_spec(package)
    return list(spec.submodule_search_locations or []) if spec else []


def problems(doc: pdoc.doc.Doc, package: str) -> Iterator[str]:
    """What is wrong in the docstring of an object, or of anything defined in it."""
    text = doc.docstring
    for heading, name in entries(text):
        if name not in parameters(doc):
            yield f"{doc.fullname}: {heading} names {name}, which is not there"
    for name in re.findall(rf"`({package}(?:\.\w+)+)`", text):
        if not exists(name):
            yield f"{doc.fullname}: there is no {name}"
    if isinstance(doc, pdoc.doc.Module | pdoc.doc.Class):
        for member in doc.own_members:
            is_elsewhere = isinstance(member, pdoc.doc.Module) or member.taken_from[0] != doc.modulename
            if not is_elsewhere:
                yield from problems(member, package)


def entries(text: str) -> Iterator[tuple[str, str]]:
    """(heading, name) of each entry of the sections that list parameters or fields."""
    for section in SECTION.finditer(text):
        indent = re.match(r"[ ]+", section[2])
        if indent:
            names = re.findall(rf"^{indent[0]}(\w+(?:, \w+)*)(?: \([^)]*\))?:", section[2], re.MULTILINE)
            yield from ((section[1], name) for several in names for name in several.split(", "))


def parameters(doc: pdoc.doc.Doc) -> set[str]:
    """Names that a docstring may explain: a function's parameters; a class's fields and what it is made from."""
    if isinstance(doc, pdoc.doc.Class):
        made_from = set(inspect.signature(doc.obj).parameters)
        return made_from | set(doc.members) | set(re.findall(r"self\.(\w+)", doc.source))
    return set(doc.signature.parameters) if isinstance(doc, pdoc.doc.Function) else set()


def exists(name: str) -> bool:
    """Whether a dotted name leads to a module or to something in one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            found = getattr(found, part, None)
        return found is not None
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "html", help="folder for the pages (docs/api/html)")
    parser.add_argument("--check", action="store_true", help="only look for warnings; keep no pages")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = build(PACKAGE, Path(folder) if flags.check else flags.out)
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
