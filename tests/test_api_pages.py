"""Invariant: the API pages say nothing that is not so: an error in a docstring is a warning, and a warning an error."""

import importlib.util
import itertools
import sys
from pathlib import Path

import pytest

pytest.importorskip("pdoc")
SCRIPT = Path(__file__).resolve().parents[1] / "docs" / "api" / "build.py"
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def pages():
    spec = importlib.util.spec_from_file_location("build_api_pages", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def warnings_of(pages, folder, monkeypatch, text):
    """Warnings about a package of its own with this text in its one module."""
    name = f"made_up_{next(NUMBERS)}"
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text('"""A package."""\n__all__ = []\n')
    (folder / name / "module.py").write_text(text.replace("PACKAGE", name))
    monkeypatch.syspath_prepend(folder)
    found = pages.build(name, folder / "html")
    page = folder / "html" / name / "module.html"
    return [each.replace(name, "PACKAGE") for each in found], page.read_text()


GOOD = '''"""A module; see `PACKAGE.module.Sum` and `anything.else`."""

from dataclasses import dataclass


def add(a: int, b: int = 0) -> int:
    """The sum of two numbers.

    Args:
        a: one number
        b: another one
    """
    return a + b


@dataclass(frozen=True)
class Sum:
    """A sum.

    Attributes:
        value: what came out
    """

    value: int

    def more(self, by: int) -> int:
        """A larger one.

        Args:
            by: how much
        """
        return self.value + by


class Counter:
    """A count.

    Args:
        start: the first number

    Attributes:
        now: the next number
    """

    def __init__(self, start: int) -> None:
        self.now = start
'''


def test_docstrings_become_a_page(pages, tmp_path, monkeypatch):
    found, page = warnings_of(pages, tmp_path, monkeypatch, GOOD)
    assert found == []
    assert "another one" in page
    assert "what came out" in page


@pytest.mark.parametrize(
    ("before", "after", "warning"),
    [
        ("        b: another one", "        c: another one", "module.add: Args names c, which is not there"),
        ("        value: what", "        result: what", "module.Sum: Attributes names result, which is not there"),
        ("        now: the next", "        then: the next", "module.Counter: Attributes names then, which is not"),
        ("        b: another one", "        b, c: others", "module.add: Args names c, which is not there"),
        ("            by: how much", "            to: how much", "module.Sum.more: Args names to, which is not there"),
        ("`PACKAGE.module.Sum`", "`PACKAGE.module.Total`", "module: there is no PACKAGE.module.Total"),
        ("a: int, b", "a: 'Number', b", "Number"),
    ],
)
def test_each_kind_of_error_is_a_warning(pages, tmp_path, monkeypatch, before, after, warning):
    assert before in GOOD
    found, _ = warnings_of(pages, tmp_path, monkeypatch, GOOD.replace(before, after))
    assert len(found) == 1
    assert (
        warning.replace("PACKAGE", "made_up_") in found[0].replace("\n", " ") or warning.split("PACKAGE")[0] in found[0]
    )


def test_a_warning_ends_the_build(pages, monkeypatch):
    monkeypatch.setattr(pages, "build", lambda package, folder: [f"{package}: bad"])
    monkeypatch.setattr(sys, "argv", ["build.py", "--check"])
    with pytest.raises(SystemExit, match="transducer_gn: bad"):
        pages.main()
