"""Runs the evaluation scripts as a user would, but in this process: starting Python and torch anew takes seconds."""

import io
import logging
import runpy
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

REPOSITORY = Path(__file__).resolve().parents[1]
RECIPE = REPOSITORY / "egs" / "librispeech" / "ASR"


def run_script(name: str, *arguments: str | Path, check: bool = True) -> SimpleNamespace:
    """Run a script of the recipe; gives what it wrote and its exit code. Unless told otherwise it must end well."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    out, err, code = io.StringIO(), io.StringIO(), 0
    try:
        with mock.patch.object(sys, "argv", [name, *map(str, arguments)]), redirect_stdout(out), redirect_stderr(err):
            runpy.run_path(str(RECIPE / name), run_name="__main__")
    except SystemExit as error:
        code = error.code
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    assert not check or code == 0, out.getvalue() + err.getvalue()
    return SimpleNamespace(stdout=out.getvalue(), stderr=err.getvalue(), returncode=code)
