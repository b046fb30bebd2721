"""Stage 5: combine and shuffle the training parts, then check everything that was produced."""

from dataclasses import dataclass
from pathlib import Path

from transducer_gn.common.command_line import CommandParser, command_parser, settings_from
from transducer_gn.common.stages import Stage, file_fingerprint
from transducer_gn.data.layout import part_manifest, read_roles


@dataclass(frozen=True)
class FinishOptions:
    """Combine the training parts and check everything.

    Attributes:
        data_dir: the folder that the earlier stages wrote to
        seed: the order of the training manifest depends on it
    """

    data_dir: Path
    seed: int = 0


def parser() -> CommandParser:
    """Flags of the command."""
    return command_parser(__doc__, FinishOptions)


def main(arguments: list[str] | None = None) -> None:
    """Combine the training parts and check everything."""
    options = settings_from(FinishOptions, parser().parse_args(arguments))
    roles = read_roles(options.data_dir)
    parts = dict.fromkeys(part for names in roles.values() for part in names)
    models = sorted(folder for folder in options.data_dir.glob("lang_*") if (folder / ".made.json").is_file())
    inputs = {
        "roles": roles,
        "manifests": {part: file_fingerprint(part_manifest(options.data_dir, part)) for part in parts},
        "models": {folder.name: file_fingerprint(folder / "tokenizer.model") for folder in models},
        "seed": options.seed,
    }
    stage = Stage(options.data_dir / ".made.json", inputs, [options.data_dir / "cuts_train.jsonl.gz"])
    if stage.is_done():
        print(f"Data: {options.data_dir} is complete")
        return
    from transducer_gn.data.prepared import PreparedData
    from transducer_gn.data.tokenizer import Tokenizer
    from transducer_gn.data.training_manifest import combine_training_parts, index_training_manifest, validate

    stage.begin()
    data = PreparedData(options.data_dir)
    combine_training_parts(data, options.seed)
    tokenizers = [Tokenizer.load(folder) for folder in models]
    validate(data, tokenizers)
    index_training_manifest(data, tokenizers)
    stage.finish()
    print(f"Data: {options.data_dir} is ready and checked")
