"""The one idiom of all command lines: flags from dataclasses, dashes or underscores, errors as one sentence.

A command makes its parser with `command_parser`, adds the few arguments that no dataclass holds, parses, and turns the
flags into its dataclasses with `settings_from`. Its script calls `run_command(main)`.
"""

import errno
import re
import sys
from argparse import RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, NoReturn, TypeVar

import yaml
from jsonargparse import ArgumentParser, DefaultHelpFormatter, Namespace

from transducer_gn.common.errors import UserError, run_script
from transducer_gn.common.protocols import IsDataclass

Settings = TypeVar("Settings", bound=IsDataclass)

ADVICE = {
    errno.ENOSPC: "the disk is full; free some space and call again, finished work is kept",
    errno.EFBIG: "a limit of file sizes (ulimit -f) is reached; raise it and call again, finished work is kept",
    errno.EDQUOT: "your disk quota is used up; free some space and call again, finished work is kept",
    errno.EACCES: "permission denied; choose a folder you may write to, or change its permissions",
    errno.EPERM: "permission denied; choose a folder you may write to, or change its permissions",
    errno.EROFS: "the file system is read-only; choose another folder",
}
KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text", "NoneType": "null"}
# Lists and mappings within each other, as no settings are. The parser reads YAML by a library that ends the process
# with a segmentation fault where there are tens of thousands.
MOST_NESTED = 50
# A file of settings may begin where another ends: its own values win over those of the file it names.
BASE = re.compile(r"^base:[ \t]*(\S+)[ \t]*(?:#.*)?$", re.MULTILINE)


class Verbatim(RawDescriptionHelpFormatter, DefaultHelpFormatter):
    """Shows a command's docstring as it stands, examples line by line."""


class CommandParser(ArgumentParser):
    """A parser whose errors are a `UserError`; flags may have dashes, `--data-dir`, or Python's underscores.

    A file given as `--config` may name another with a line `base: FILE`, relative to its own folder: what that one
    holds comes first.

    Attributes:
        renamed: new names of flags by their old ones, so that an old command ends in a sentence that helps
    """

    def __init__(self, *args: Any, renamed: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.renamed = renamed or {}

    # As in jsonargparse, whose parsers take more than argparse's and give a Namespace of their own.
    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, *rest: Any, **named: Any
    ) -> Namespace:
        """Parse `args`, those of the program if None."""
        arguments = self.as_named(sys.argv[1:] if args is None else args)
        for argument in arguments:
            if is_deep(argument):
                raise UserError(f"{argument[:20]}... has brackets within brackets {MOST_NESTED} times; see --help")
        try:
            return super().parse_args(arguments, *rest, **named)
        except OverflowError as error:
            raise UserError(f"a number among the settings is too large ({error}); see --help") from error
        # Not UTF-8, or a number of thousands of digits; or nested too deeply.
        except (ValueError, RecursionError) as error:
            raise UserError(f"--config names a file that is no YAML ({error}); see --help") from error

    def as_named(self, arguments: Sequence[str]) -> list[str]:
        """The arguments with flags as the parser names them, whichever of dashes and underscores they came with."""
        named = []
        for argument in arguments:
            flag, equals, value = argument.partition("=")
            spellings = (flag, "--" + flag[2:].replace("-", "_"), "--" + flag[2:].replace("_", "-"))
            known = (x for x in spellings if flag.startswith("--") and x in self._option_string_actions)
            named.append(next(known, flag) + equals + value)
        return named

    def parse_string(self, content: str, path: Any = "", *rest: Any, **named: Any) -> Namespace:
        """Parse the text of a file of settings, on top of the file that its `base` names."""
        if is_deep(content):
            raise UserError(f"{path}: has sections within sections {MOST_NESTED} times; such settings do not exist")
        found = BASE.search(content)
        if found is None:
            return super().parse_string(content, path, *rest, **named)
        try:
            # The parser works in the folder of the file that it reads.
            settings = self.parse_path(found[1], *rest, **named)
        except (OSError, TypeError) as error:
            raise UserError(f"{path}: cannot read its base {found[1]}: {error}") from error
        own = BASE.sub("", content)
        if all(not line.strip() or line.startswith("#") for line in own.splitlines()):
            return settings
        settings.update(super().parse_string(own, path, *rest, **named))
        return settings

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """End with a sentence."""
        if not self.exit_on_error:
            super().error(message, ex)
        for old, new in self.renamed.items():
            in_file = re.search(r"Group '(.*?)' does not accept option '(.*?)'", message)
            if re.search(rf"--{re.escape(old)}\b", message) or (in_file and ".".join(in_file.groups()) == old):
                raise UserError(f"{old} is now called {new}; give it under that name") from ex
        raise UserError(f"{sentence(message)}; see --help") from ex


def is_deep(text: str) -> bool:
    """Whether a text holds YAML whose lists and mappings are nested beyond `MOST_NESTED`; it need not be YAML."""
    depth = 0
    try:
        # One event after another: these take no stack.
        for event in yaml.parse(text, yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MOST_NESTED:
                return True
    except (yaml.YAMLError, ValueError):
        # Whoever reads it will say what is wrong with it.
        pass
    return False


def sentence(message: str) -> str:
    """What the parser says about a wrong value or flag, as users name things."""
    key = re.search(r'(?:Parser key|Key) "([^"]+)"', message)
    value = re.search(r"(?:Got value|Given value): (.*)", message)
    kinds = re.search(r"Subtypes: \[(.*)\]|Expected an? (.*?)\. Got value", message)
    if section := re.search(r'Parser key "([^"]+)": Unable to load config "(.*)"', message, re.DOTALL):
        name = flag_name(section[1])
        return f"{name} has settings by name, {name}.NAME VALUE, or in a file; {section[2]!r} is neither"
    if key and "is required" in message:
        return f"{flag_name(key[1])} must be given"
    if key and value and kinds:
        return f"{flag_name(key[1])} must be {kind_name(kinds[1] or kinds[2])}, not {value[1].strip()!r}"
    if found := re.match(r"argument (\S+): expected one argument", message):
        return f"{flag_name(found[1])} needs a value"
    if found := re.match(r"unrecognized arguments: (.*)", message, re.DOTALL):
        return f"unknown option {found[1]}"
    if found := re.match(r"the following arguments are required: (.*)", message):
        return f"{', '.join(map(flag_name, found[1].split(', ')))} must be given"
    # A key that is given before its reason is a flag like the others.
    return re.sub(r'^Parser key "([^"]+)"', lambda found: flag_name(found[1]), " ".join(message.split()))


def flag_name(name: str) -> str:
    """A flag as `--help` and the documentation write it: dashes, but in settings of sections, which files hold, too."""
    name = name.removeprefix("--")
    return f"--{name}" if "." in name else f"--{name.replace('_', '-')}"


def kind_name(kinds: str) -> str:
    """Python's names of types in words."""
    words = [
        KINDS.get(found[1], found[1]) if found[1] else f"one of {found[2]}"
        for found in re.finditer(r"<class '(?:\w+\.)*(\w+)'>|Literal\[([^\]]*)\]", kinds)
    ]
    return " or ".join(words) or kinds


def command_parser(description: str | None, *classes: type) -> CommandParser:
    """A parser with `--config` and one flag per field of the given dataclasses, `--like-this` or `--like_this`."""
    parser = CommandParser(description=description, formatter_class=Verbatim)
    parser.add_argument("--config", action="config", help="YAML file with any of these; may be given several times")
    for settings in classes:
        parser.add_class_arguments(settings)
    return parser


def settings_from(kind: type[Settings], flags: Namespace) -> Settings:
    """The dataclass that the flags fill; UserError if they contradict each other."""
    return kind(**{field.name: flags[field.name] for field in fields(kind)})


@contextmanager
def explained_disk_errors() -> Iterator[None]:
    """Turn a full disk or a folder that cannot be written into a `UserError`; other errors pass."""
    try:
        yield
    except OSError as error:
        if error.errno not in ADVICE:
            raise
        place = error.filename or "the output folder"
        raise UserError(f"cannot write {place}: {ADVICE[error.errno]}") from error


def run_command(main: Callable[[], None]) -> None:
    """Run a command's `main` as a script does: what a user can act on ends in one sentence and exit code 2."""

    def explained() -> None:
        with explained_disk_errors():
            main()

    run_script(explained)
