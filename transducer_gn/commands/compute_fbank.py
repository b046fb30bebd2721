"""Stage 3: compute and store 80-dimensional filter banks of all parts, and of noise if there is any."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transducer_gn.common.command_line import CommandParser, command_parser, settings_from
from transducer_gn.common.processes import default_jobs
from transducer_gn.common.stages import Stage, file_fingerprint
from transducer_gn.data.layout import read_roles


@dataclass(frozen=True)
class FeatureOptions:
    """Compute and store features.

    Attributes:
        data_dir: the folder that stage 1 wrote to
        nj: processes at a time; the result does not depend on it
        speed_factors: training parts are added once more at each of these speeds, such as [0.9,1.1]
        tick_power: features are rounded to multiples of 2 ** tick_power; -5 takes a third less space than -10
    """

    data_dir: Path
    nj: int = default_jobs()
    speed_factors: list[float] | None = None
    tick_power: int = -10


def parser() -> CommandParser:
    """Flags of the command."""
    return command_parser(__doc__, FeatureOptions)


def main(arguments: list[str] | None = None) -> None:
    """Compute and store features."""
    options = settings_from(FeatureOptions, parser().parse_args(arguments))
    roles = read_roles(options.data_dir)
    for part in dict.fromkeys(part for names in roles.values() for part in names):
        factors = (options.speed_factors or []) if part in roles["train"] else []
        inputs = {
            "manifests": [
                file_fingerprint(options.data_dir / "manifests" / f"{kind}_{part}.jsonl.gz")
                for kind in ("recordings", "supervisions")
            ],
            "speed_factors": factors,
            "tick_power": options.tick_power,
        }
        store_part(options.data_dir, part, factors, inputs, options.tick_power, options.nj)
    noise = options.data_dir / "manifests" / "recordings_musan.jsonl.gz"
    if noise.is_file():
        store_noise(
            options.data_dir,
            {"manifests": [file_fingerprint(noise)], "tick_power": options.tick_power},
            options.tick_power,
            options.nj,
        )


def store_part(
    data_dir: Path, part: str, factors: list[float], inputs: dict[str, Any], tick_power: int, nj: int
) -> None:
    """Store the features of one part unless that was done."""
    stage = Stage(data_dir / "fbank" / f".made_{part}.json", inputs, [data_dir / "fbank" / f"cuts_{part}.jsonl.gz"])
    if stage.is_done():
        print(f"Features of {part}: complete")
        return
    # Imported late: lhotse takes seconds, which a finished stage does not need.
    from transducer_gn.config import StorageConfig
    from transducer_gn.data.features import change_speed, cuts_of_part, store_features

    stage.begin()
    cuts = cuts_of_part(data_dir, part)
    cuts += [change_speed(cut, factor) for factor in factors for cut in list(cuts)]
    store_features(cuts, part, inputs, data_dir, StorageConfig(tick_power), nj)
    stage.finish()


def store_noise(data_dir: Path, inputs: dict[str, Any], tick_power: int, nj: int) -> None:
    """Store the features of windows of noise unless that was done."""
    stage = Stage(data_dir / "fbank" / ".made_musan.json", inputs, [data_dir / "fbank" / "cuts_musan.jsonl.gz"])
    if stage.is_done():
        print("Features of musan: complete")
        return
    from lhotse import Recording

    from transducer_gn.config import StorageConfig
    from transducer_gn.data.features import noise_windows, store_features
    from transducer_gn.data.manifest_files import read_json_lines

    stage.begin()
    recordings = map(Recording.from_dict, read_json_lines(data_dir / "manifests" / "recordings_musan.jsonl.gz"))
    store_features(noise_windows(list(recordings)), "musan", inputs, data_dir, StorageConfig(tick_power), nj)
    stage.finish()
