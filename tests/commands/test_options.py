"""Invariant: the options of all commands are those of tests/fixtures/options.txt, so that a change is a decision; every
script of egs/ and local/ is its command, and all commands stand under `transducer-gn`.
"""

import importlib
import subprocess
import sys

import pytest
from commands.option_list import FIXTURE, all_options
from scripts import RECIPE, REPOSITORY

from transducer_gn.commands import COMMANDS


def test_options_are_those_that_were_decided_on():
    decided, found = FIXTURE.read_text().splitlines(), all_options()
    gone, new = sorted(set(decided) - set(found)), sorted(set(found) - set(decided))
    assert decided == found, (
        f"options that are gone: {gone}; new ones: {new}. If that is meant, say it in CHANGELOG.md and run "
        "python tests/commands/option_list.py > tests/fixtures/options.txt"
    )


def test_prepare_accepts_what_is_listed():
    listed = [line.split()[1] for line in FIXTURE.read_text().splitlines() if line.startswith("prepare.sh ")]
    helped = subprocess.run([REPOSITORY / "prepare.sh", "--help"], capture_output=True, text=True, check=True).stdout
    assert len(listed) == 25
    assert all(option in helped for option in listed if option not in ("-h", "--help"))


# Commands that are no part of a recipe: they stand under `transducer-gn` alone.
WITHOUT_SCRIPT = {"transcribe", "serve"}


def test_every_script_is_a_command_and_every_command_of_the_recipe_has_a_script():
    scripts = {path.stem: path for folder in (RECIPE, REPOSITORY / "local") for path in folder.glob("*.py")}
    assert scripts.keys() == COMMANDS.keys() - WITHOUT_SCRIPT
    for name, path in scripts.items():
        assert f"from transducer_gn.commands.{name} import main" in path.read_text()
        assert path.stat().st_mode & 0o111


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_the_docstring_as_it_stands(name, capsys):
    module = importlib.import_module(f"transducer_gn.commands.{name}")
    with pytest.raises(SystemExit) as caught:
        module.main(["--help"])
    assert caught.value.code == 0 and module.__doc__.strip() in capsys.readouterr().out


def test_parsers_of_local_programs_need_neither_lhotse_nor_torch():
    names = [path.stem for path in (REPOSITORY / "local").glob("*.py")]
    code = (
        "import sys, importlib\n"
        f"for name in {names}: importlib.import_module(f'transducer_gn.commands.{{name}}').parser()\n"
        "print([name for name in ('torch', 'lhotse', 'scipy', 'matplotlib') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert result.stdout.strip() == "[]"
