#!/usr/bin/env python3
"""Print a table of a prepared folder's parts and draw a few of its utterances."""

import json
from dataclasses import asdict
from pathlib import Path

from transducer_gn.common.command_line import run_program
from transducer_gn.common.errors import UserError


def main(
    data_dir: Path = Path("data/mini"), lang_dir: Path | None = None, figure: Path | None = None, examples: int = 5
) -> None:
    """Describe a prepared folder.

    Args:
        data_dir: A folder that prepare.sh made.
        lang_dir: The token model to count tokens with; by default the largest in the folder.
        figure: Where to draw (PNG, SVG or PDF by its name); by default DATA_DIR/examples.png.
        examples: How many utterances to draw.
    """
    from transducer_gn.data.description import choose_examples, describe_parts
    from transducer_gn.data.prepared import PreparedData
    from transducer_gn.data.tokenizer import Tokenizer
    from transducer_gn.reporting.description import draw_examples, parts_table

    if examples < 1:
        raise UserError(f"--examples must be at least 1, not {examples}")
    data = PreparedData(data_dir)
    parts = data.parts("train")
    if lang_dir is None:
        folders = [folder for folder in data_dir.glob("lang_*_*") if (folder / "tokenizer.model").is_file()]
        if not folders or not parts:
            raise UserError(f"{data_dir} has no token model; run prepare.sh to the end, or name one with --lang-dir")
        lang_dir = max(folders, key=lambda folder: int(folder.name.split("_")[-1]))
    descriptions = describe_parts(data, Tokenizer.load(lang_dir))
    print(parts_table(f"{data_dir}, tokens of {lang_dir.name}", descriptions).text())
    (data_dir / "description.json").write_text(json.dumps([asdict(part) for part in descriptions], indent=2) + "\n")
    figure = figure or data_dir / "examples.png"
    part = next(data.parts(role)[0] for role in ("test", "dev", "train") if data.parts(role))
    draw_examples(choose_examples(list(data.cuts(part)), examples), figure)
    print(f"Figure: {figure}")


if __name__ == "__main__":
    run_program(main)
