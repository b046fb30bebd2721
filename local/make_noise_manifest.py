#!/usr/bin/env python3
"""Stage 2, optional: check the recordings of MUSAN (or any folder of 16 kHz WAV files) and write their manifest."""

from pathlib import Path

from transducer_gn.common.command_line import run_program
from transducer_gn.common.errors import UserError
from transducer_gn.common.processes import default_jobs
from transducer_gn.common.stages import Stage, listing_fingerprint


def main(noise_dir: Path, data_dir: Path, nj: int = default_jobs(), skip_bad: bool = False) -> None:
    """Check noise recordings and write their manifest.

    Args:
        noise_dir: All WAV files below it are used.
        data_dir: Where to write.
        nj: Processes at a time; the result does not depend on it.
        skip_bad: Leave bad recordings out instead of stopping.
    """
    files = sorted(noise_dir.rglob("*.wav"))
    if not files:
        raise UserError(f"there is no WAV file below {noise_dir}; put MUSAN there, or leave --musan out")
    inputs = {"noise": str(noise_dir.resolve()), "files": listing_fingerprint(noise_dir, files), "skip_bad": skip_bad}
    outputs = [data_dir / "manifests" / "recordings_musan.jsonl.gz"]
    stage = Stage(data_dir / "manifests" / ".made_musan.json", inputs, outputs)
    if stage.is_done():
        print("Noise manifest: complete")
        return
    from transducer_gn.data.manifests import make_noise_manifest

    stage.begin()
    count = make_noise_manifest(files, data_dir, nj, skip_bad)
    stage.finish()
    print(f"Noise manifest: {count} recordings")


if __name__ == "__main__":
    run_program(main)
