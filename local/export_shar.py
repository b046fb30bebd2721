#!/usr/bin/env python3
"""Stage 6, optional: export features and manifests as lhotse Shar, for training on many machines."""

from pathlib import Path

from transducer_gn.common.command_line import run_program
from transducer_gn.common.errors import UserError
from transducer_gn.common.processes import default_jobs
from transducer_gn.common.stages import Stage, file_fingerprint
from transducer_gn.data.layout import read_roles


def main(data_dir: Path, shard_size: int = 1000, nj: int = default_jobs(), tick_power: int = -10) -> None:
    """Export to DATA_DIR/shar/train and to one folder for each dev and test part.

    Args:
        data_dir: The folder that the earlier stages wrote to.
        shard_size: Utterances per shard; there must be at least as many shards as ranks times workers.
        nj: Processes at a time; the result does not depend on it.
        tick_power: Features are rounded to multiples of 2 ** tick_power.
    """
    if shard_size < 1:
        raise UserError(f"--shard-size must be at least 1, not {shard_size}")
    roles = read_roles(data_dir)
    manifests = {"train": data_dir / "cuts_train.jsonl.gz"}
    manifests |= {part: data_dir / "fbank" / f"cuts_{part}.jsonl.gz" for part in roles["dev"] + roles["test"]}
    for name, manifest in manifests.items():
        inputs = {"manifest": file_fingerprint(manifest), "shard_size": shard_size, "tick_power": tick_power}
        stage = Stage(data_dir / "shar" / f".made_{name}.json", inputs, [data_dir / "shar" / name / "index.json"])
        if stage.is_done():
            print(f"Shar of {name}: complete")
            continue
        from transducer_gn.data.shar import export_shar

        stage.begin()
        export_shar(manifest, data_dir, data_dir / "shar" / name, shard_size, tick_power, nj)
        stage.finish()


if __name__ == "__main__":
    run_program(main)
