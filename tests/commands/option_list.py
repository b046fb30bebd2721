"""All options of all commands, one line each: `python tests/commands/option_list.py > tests/fixtures/options.txt`."""

import re
import sys
from importlib import import_module
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
FIXTURE = REPOSITORY / "tests" / "fixtures" / "options.txt"


def all_options() -> list[str]:
    """`command --option` for prepare.sh and every command of Python."""
    from transducer_gn.commands import COMMANDS

    lines = [f"prepare.sh {option}" for option in shell_options(REPOSITORY / "prepare.sh")]
    for name in COMMANDS:
        parser = import_module(f"transducer_gn.commands.{name}").parser()
        lines += [f"{name} {option}" for action in parser._actions for option in action.option_strings or [action.dest]]
    return lines


def shell_options(script: Path) -> list[str]:
    """What the option loop of a shell script accepts."""
    loop = re.search(r"^  case \$1 in.*?^  esac", script.read_text(), re.MULTILINE | re.DOTALL)[0]
    return list(dict.fromkeys(re.findall(r"(?<![\w\"])--?[a-z][a-z-]*(?=[ )])", loop.split("fail")[0])))


if __name__ == "__main__":
    sys.path.insert(0, str(REPOSITORY))
    print("\n".join(all_options()))
