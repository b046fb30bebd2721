"""Stage 2, optional: check the recordings of MUSAN (or any folder of 16 kHz WAV files) and write their manifest."""

from dataclasses import dataclass
from pathlib import Path

from transducer_gn.common.command_line import CommandParser, command_parser, settings_from
from transducer_gn.common.errors import UserError
from transducer_gn.common.processes import default_jobs
from transducer_gn.common.stages import Stage, listing_fingerprint


@dataclass(frozen=True)
class NoiseOptions:
    """Check noise recordings and write their manifest.

    Attributes:
        noise_dir: all WAV files below it are used
        data_dir: where to write
        nj: processes at a time; the result does not depend on it
        skip_bad: leave bad recordings out instead of stopping
    """

    noise_dir: Path
    data_dir: Path
    nj: int = default_jobs()
    skip_bad: bool = False


def parser() -> CommandParser:
    """Flags of the command."""
    return command_parser(__doc__, NoiseOptions)


def main(arguments: list[str] | None = None) -> None:
    """Check noise recordings and write their manifest."""
    options = settings_from(NoiseOptions, parser().parse_args(arguments))
    files = sorted(options.noise_dir.rglob("*.wav"))
    if not files:
        raise UserError(f"there is no WAV file below {options.noise_dir}; put MUSAN there, or leave --musan out")
    inputs = {
        "noise": str(options.noise_dir.resolve()),
        "files": listing_fingerprint(options.noise_dir, files),
        "skip_bad": options.skip_bad,
    }
    outputs = [options.data_dir / "manifests" / "recordings_musan.jsonl.gz"]
    stage = Stage(options.data_dir / "manifests" / ".made_musan.json", inputs, outputs)
    if stage.is_done():
        print("Noise manifest: complete")
        return
    from transducer_gn.data.manifests import make_noise_manifest

    stage.begin()
    count = make_noise_manifest(files, options.data_dir, options.nj, options.skip_bad)
    stage.finish()
    print(f"Noise manifest: {count} recordings")
