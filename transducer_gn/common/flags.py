"""Flags of the evaluation scripts, from the dataclasses that hold their settings."""

import sys
from argparse import RawDescriptionHelpFormatter
from dataclasses import fields
from typing import TypeVar

from jsonargparse import ArgumentParser, DefaultHelpFormatter, Namespace

from transducer_gn.common.command_line import with_underscores

Settings = TypeVar("Settings")


class Verbatim(RawDescriptionHelpFormatter, DefaultHelpFormatter):
    """Shows a script's docstring as it stands, examples line by line."""


def settings_parser(description: str, *classes: type) -> ArgumentParser:
    """A parser with one flag for each field of the given dataclasses, `--like-this` or `--like_this`."""
    parser = ArgumentParser(description=description, formatter_class=Verbatim)
    for settings in classes:
        parser.add_class_arguments(settings)
    return parser


def parse_flags(parser: ArgumentParser, arguments: list[str] | None = None) -> Namespace:
    """Parse `arguments`, those of the program if None."""
    return parser.parse_args(with_underscores(sys.argv[1:] if arguments is None else arguments))


def settings_from(kind: type[Settings], flags: Namespace) -> Settings:
    """The dataclass that the flags fill; UserError if they contradict each other."""
    return kind(**{field.name: flags[field.name] for field in fields(kind)})
