"""The program `transducer-gn`: all commands under one name. Only the one that is asked for is imported."""

import sys
from importlib import import_module

from transducer_gn.commands import COMMANDS, GROUPS, subcommand

PROGRAM = "transducer-gn"


def overview() -> str:
    """All commands, with what each does."""
    width = max(len(subcommand(name)) for name in COMMANDS)
    parts = [f"usage: {PROGRAM} COMMAND [options]\n\nStreaming Transducers trained without label bias.\n"]
    for title, commands in GROUPS.items():
        lines = [f"  {subcommand(name):{width}}  {line}" for name, line in commands.items()]
        parts.append("\n".join([f"{title}:", *lines, ""]))
    return "\n".join([*parts, f"{PROGRAM} COMMAND --help says more about each."])


def run(arguments: list[str]) -> None:
    """Run the command that is named first, with the arguments after it."""
    from transducer_gn.common.command_line import run_command
    from transducer_gn.common.errors import UserError, run_script

    modules = {spelling: name for name in COMMANDS for spelling in (name, subcommand(name))}

    def unknown() -> None:
        raise UserError(f"there is no command {arguments[0]}; {PROGRAM} --help lists all")

    if arguments[0] not in modules:
        run_script(unknown)
        return
    name = modules[arguments[0]]
    # What a command calls itself, in its help and in what it complains of.
    sys.argv = [f"{PROGRAM} {subcommand(name)}", *arguments[1:]]
    run_command(import_module(f"transducer_gn.commands.{name}").main)


def main() -> None:
    """The console script."""
    arguments = sys.argv[1:]
    sys.argv[0] = PROGRAM
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(overview())
        sys.exit(0 if arguments else 2)
    run(arguments)
