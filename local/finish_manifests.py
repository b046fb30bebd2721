#!/usr/bin/env python3
"""Stage 5: combine and shuffle the training parts, then check everything that was produced."""

from pathlib import Path

from transducer_gn.common.command_line import run_program
from transducer_gn.common.stages import Stage, file_fingerprint
from transducer_gn.data.layout import read_roles


def main(data_dir: Path, seed: int = 0) -> None:
    """Combine the training parts and check everything.

    Args:
        data_dir: The folder that the earlier stages wrote to.
        seed: The order of the training manifest depends on it.
    """
    roles = read_roles(data_dir)
    parts = dict.fromkeys(part for names in roles.values() for part in names)
    models = sorted(folder for folder in data_dir.glob("lang_*") if (folder / ".made.json").is_file())
    inputs = {
        "roles": roles,
        "manifests": {part: file_fingerprint(data_dir / "fbank" / f"cuts_{part}.jsonl.gz") for part in parts},
        "models": {folder.name: file_fingerprint(folder / "tokenizer.model") for folder in models},
        "seed": seed,
    }
    stage = Stage(data_dir / ".made.json", inputs, [data_dir / "cuts_train.jsonl.gz"])
    if stage.is_done():
        print(f"Data: {data_dir} is complete")
        return
    from transducer_gn.data.prepared import PreparedData
    from transducer_gn.data.tokenizer import Tokenizer
    from transducer_gn.data.training_manifest import combine_training_parts, validate

    stage.begin()
    data = PreparedData(data_dir)
    combine_training_parts(data, seed)
    validate(data, [Tokenizer.load(folder) for folder in models])
    stage.finish()
    print(f"Data: {data_dir} is ready and checked")


if __name__ == "__main__":
    run_program(main)
