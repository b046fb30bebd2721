"""Print a table of a prepared folder's parts and draw a few of its utterances."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from transducer_gn.common.command_line import CommandParser, command_parser, settings_from
from transducer_gn.common.errors import UserError


@dataclass(frozen=True)
class DescriptionOptions:
    """Describe a prepared folder.

    Attributes:
        data_dir: a folder that prepare.sh made
        lang_dir: the token model to count tokens with; by default the largest in the folder
        figure: where to draw (PNG, SVG or PDF by its name); by default DATA_DIR/examples.png
        examples: how many utterances to draw
    """

    data_dir: Path = Path("data/mini")
    lang_dir: Path | None = None
    figure: Path | None = None
    examples: int = 5


def parser() -> CommandParser:
    """Flags of the command."""
    return command_parser(__doc__, DescriptionOptions)


def main(arguments: list[str] | None = None) -> None:
    """Describe a prepared folder."""
    options = settings_from(DescriptionOptions, parser().parse_args(arguments))
    from transducer_gn.data.description import choose_examples, describe_parts
    from transducer_gn.data.prepared import PreparedData
    from transducer_gn.data.tokenizer import Tokenizer
    from transducer_gn.reporting.description import draw_examples, parts_table

    if options.examples < 1:
        raise UserError(f"--examples must be at least 1, not {options.examples}")
    data = PreparedData(options.data_dir)
    parts = data.parts("train")
    lang_dir, figure = options.lang_dir, options.figure or options.data_dir / "examples.png"
    if lang_dir is None:
        folders = [folder for folder in options.data_dir.glob("lang_*_*") if (folder / "tokenizer.model").is_file()]
        if not folders or not parts:
            raise UserError(
                f"{options.data_dir} has no token model; run prepare.sh to the end, or name one with --lang-dir"
            )
        lang_dir = max(folders, key=lambda folder: int(folder.name.split("_")[-1]))
    descriptions = describe_parts(data, Tokenizer.load(lang_dir))
    print(parts_table(f"{options.data_dir}, tokens of {lang_dir.name}", descriptions).text())
    (options.data_dir / "description.json").write_text(
        json.dumps([asdict(part) for part in descriptions], indent=2) + "\n"
    )
    part = next(data.parts(role)[0] for role in ("test", "dev", "train") if data.parts(role))
    draw_examples(choose_examples(list(data.cuts(part)), options.examples), figure)
    print(f"Figure: {figure}")
