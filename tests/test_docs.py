"""Invariant: what the pages name is there: files, folders, modules, names of the package, and places they link to."""

import importlib
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = sorted(
    path for pattern in ("*.md", "docs/*.md", "egs/**/*.md") for path in REPOSITORY.glob(pattern) if path.is_file()
)
# From where a page may name a file.
ROOTS = (REPOSITORY, REPOSITORY / "transducer_gn", REPOSITORY / "egs" / "librispeech" / "ASR")
# Made by commands, not kept with the source.
MADE = ("data/", "exp/", "download/", "docs/api/html/", ".venv/")
FILE = re.compile(
    r"`((?:[\w.-]+/)*[\w.-]+\.(?:py|sh|md|yaml|toml)|(?:benchmarks|conf|docs|egs|local|tests)/(?:[\w-]+/)*)`"
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAME = re.compile(r"`(transducer_gn(?:\.\w+)+)`")


def missing(text: str, folder: Path) -> list[str]:
    """What a page in a folder names but is not there."""
    files = [file for file in FILE.findall(text) if not file.startswith(MADE)]
    links = [link.partition("#")[0] for link in LINK.findall(text) if "://" not in link and not link.startswith("#")]
    absent = [file for file in files if not any((root / file).exists() for root in (*ROOTS, folder))]
    absent += [link for link in links if link and not (folder / link).exists()]
    absent += [link for link in LINK.findall(text) if link.startswith("#") and link[1:] not in anchors(text)]
    return absent + [name for name in NAME.findall(text) if not exists(name)]


def anchors(text: str) -> set[str]:
    """Names of the headings of a page, as links within it spell them."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def exists(name: str) -> bool:
    """Whether a dotted name leads to a module or to something in one."""
    try:
        importlib.import_module(name)
    except ImportError:
        module, _, attribute = name.rpartition(".")
        return bool(module) and exists(module) and hasattr(importlib.import_module(module), attribute)
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_what_a_page_names_is_there(page):
    absent = missing(page.read_text(), page.parent)
    assert not absent, "\n".join(absent)


def test_nothing_is_left_to_check():
    mark = "CHECK" + "ME"
    assert [str(page.relative_to(REPOSITORY)) for page in PAGES if mark in page.read_text()] == []


@pytest.mark.parametrize(
    ("text", "absent"),
    [
        ("`lattice/recursion.py` and `docs/data.md` and `conf/` and `exp/mini/notes.md` and `manifests/`", []),
        ("`lattice/recursions.py`", ["lattice/recursions.py"]),
        ("`conf/settings/`", ["conf/settings/"]),
        ("[a](docs/data.md#anything) [b](https://example.org/none.md)", []),
        ("[a](docs/none.md)", ["docs/none.md"]),
        ("# What it costs\n[a](#what-it-costs) [b](#what-it-earns)", ["#what-it-earns"]),
        ("`transducer_gn.lattice.recursion.sequence_scores` `transducer_gn.config`", []),
        ("`transducer_gn.lattice.recursion.scores`", ["transducer_gn.lattice.recursion.scores"]),
    ],
)
def test_what_is_missing_is_found(text, absent):
    assert missing(text, REPOSITORY) == absent
