"""Stage 6, optional: export features and manifests as lhotse Shar, for training on many machines."""

from dataclasses import dataclass
from pathlib import Path

from transducer_gn.common.command_line import CommandParser, command_parser, settings_from
from transducer_gn.common.errors import UserError
from transducer_gn.common.processes import default_jobs
from transducer_gn.common.stages import Stage, file_fingerprint
from transducer_gn.data.layout import part_manifest, read_roles


@dataclass(frozen=True)
class SharOptions:
    """Export to DATA_DIR/shar/train and to one folder for each dev and test part.

    Attributes:
        data_dir: the folder that the earlier stages wrote to
        shard_size: utterances per shard; there must be at least as many shards as ranks times workers
        nj: processes at a time; the result does not depend on it
        tick_power: features are rounded to multiples of 2 ** tick_power
    """

    data_dir: Path
    shard_size: int = 1000
    nj: int = default_jobs()
    tick_power: int = -10


def parser() -> CommandParser:
    """Flags of the command."""
    return command_parser(__doc__, SharOptions)


def main(arguments: list[str] | None = None) -> None:
    """Export to DATA_DIR/shar/train and to one folder for each dev and test part."""
    options = settings_from(SharOptions, parser().parse_args(arguments))
    if options.shard_size < 1:
        raise UserError(f"--shard-size must be at least 1, not {options.shard_size}")
    roles = read_roles(options.data_dir)
    manifests = {"train": options.data_dir / "cuts_train.jsonl.gz"}
    manifests |= {part: part_manifest(options.data_dir, part) for part in roles["dev"] + roles["test"]}
    for name, manifest in manifests.items():
        inputs = {
            "manifest": file_fingerprint(manifest),
            "shard_size": options.shard_size,
            "tick_power": options.tick_power,
            # What the folder's index holds; see SharExport.
            "format": 2,
        }
        stage = Stage(
            options.data_dir / "shar" / f".made_{name}.json", inputs, [options.data_dir / "shar" / name / "index.json"]
        )
        if stage.is_done():
            print(f"Shar of {name}: complete")
            continue
        from transducer_gn.data.shar import SharExport, export_shar
        from transducer_gn.data.tokenizer import Tokenizer

        stage.begin()
        export_shar(
            manifest,
            options.data_dir,
            options.data_dir / "shar" / name,
            options.shard_size,
            options.tick_power,
            options.nj,
        )
        if name == "train":
            for model in sorted(options.data_dir.glob("lang_*")):
                SharExport(options.data_dir / "shar" / name).tokens(Tokenizer.load(model))
        stage.finish()
