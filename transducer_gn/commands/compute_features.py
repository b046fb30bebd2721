"""Stage 3: compute and store the features of all parts, and of noise if there is any.

Filter banks, or the vectors of a pretrained front end (--front-end moonshine-tiny), whose standardisation is taken from
the training parts and stored with it. If it is to be trained along (model.front_end.freeze: false in --conf), only the
front end is stored: such training reads audio.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from transducer_gn.common.command_line import CommandParser, command_parser, settings_from
from transducer_gn.common.errors import UserError, require
from transducer_gn.common.processes import default_jobs
from transducer_gn.common.stages import Stage, file_fingerprint
from transducer_gn.config import FrontEndConfig, config_parser, read_config
from transducer_gn.data.layout import FRONT_END_PARAMETERS, FRONT_END_RECORD, part_manifest, read_roles

if TYPE_CHECKING:
    from transducer_gn.data.features import Extractor

# Vectors of a pretrained front end have deviation 1; filter banks are logarithms between -16 and 10.
TICK_POWERS = {"filter-banks": -10, "moonshine-tiny": -5}


@dataclass(frozen=True)
class FeatureOptions:
    """Compute and store features.

    Attributes:
        data_dir: the folder that stage 1 wrote to
        nj: processes at a time; the result does not depend on it
        speed_factors: training parts are added once more at each of these speeds, such as [0.9,1.1]
        tick_power: features are rounded to multiples of 2 ** tick_power; -5 takes a third less space than -10. null
            for -10, or -5 for moonshine-tiny
        front_end: filter-banks or moonshine-tiny; null for that of --conf
        front_end_file: the pretrained encoder's ONNX file, or front_end.pt of other data to have its standardisation,
            or a checkpoint whose encoder was trained along
        conf: settings of the system, of which model.front_end matters here
    """

    data_dir: Path
    nj: int = default_jobs()
    speed_factors: list[float] | None = None
    tick_power: int | None = None
    front_end: Literal["filter-banks", "moonshine-tiny"] | None = None
    front_end_file: Path | None = None
    conf: Path | None = None

    def front_end_config(self) -> FrontEndConfig:
        """The settings of the front end."""
        if self.conf is None:
            return FrontEndConfig(self.front_end or "filter-banks")
        config = read_config(config_parser(None), ["--config", str(self.conf)])[0].model.front_end
        wrong = f"{self.conf} says {config.kind}; leave --front-end out, or choose another --conf"
        require(self.front_end in (None, config.kind), "--front-end", wrong)
        return config


def parser() -> CommandParser:
    """Flags of the command."""
    return command_parser(__doc__, FeatureOptions)


def main(arguments: list[str] | None = None) -> None:
    """Compute and store features."""
    options = settings_from(FeatureOptions, parser().parse_args(arguments))
    config = options.front_end_config()
    inputs: dict[str, Any] = {"tick_power": options.tick_power or TICK_POWERS[config.kind]}
    if config.is_trained:
        inputs["stored"] = False
    extractor = None
    if config.kind == "filter-banks":
        for name in (FRONT_END_RECORD, FRONT_END_PARAMETERS):
            (options.data_dir / name).unlink(missing_ok=True)
    else:
        extractor, inputs["front_end"] = front_end_extractor(options, config)
    roles = read_roles(options.data_dir)
    for part in dict.fromkeys(part for names in roles.values() for part in names):
        factors = (options.speed_factors or []) if part in roles["train"] else []
        own = inputs | {"manifests": manifest_fingerprints(options.data_dir, part), "speed_factors": factors}
        store_part(options, part, factors, own, extractor)
    noise = options.data_dir / "manifests" / "recordings_musan.jsonl.gz"
    if noise.is_file() and extractor is None:
        store_noise(options, inputs | {"manifests": [file_fingerprint(noise)]})


def manifest_fingerprints(data_dir: Path, part: str) -> list[str]:
    """Checksums of a part's manifests."""
    kinds = ("recordings", "supervisions")
    return [file_fingerprint(data_dir / "manifests" / f"{kind}_{part}.jsonl.gz") for kind in kinds]


def front_end_extractor(options: FeatureOptions, config: FrontEndConfig) -> tuple["Extractor", dict[str, object]]:
    """A pretrained front end, read and fitted unless that was done, and all that its vectors depend on."""
    if options.front_end_file is None:
        raise UserError(f"--front-end-file must be given for {config.kind}")
    from transducer_gn.data.features import cuts_of_part
    from transducer_gn.recognition.stored_front_end import (
        FrontEndExtractor,
        fit_front_end,
        read_front_end,
        read_parameters,
        store_front_end,
    )

    front_end, is_fitted = read_front_end(config, options.front_end_file)
    parts = read_roles(options.data_dir)["train"]
    stored = options.data_dir / FRONT_END_PARAMETERS
    # All that the standardisation depends on; it is not known before it is fitted.
    inputs = front_end.fingerprint() | {
        "manifests": {} if is_fitted else {part: manifest_fingerprints(options.data_dir, part) for part in parts}
    }
    stage = Stage(options.data_dir / ".made_front_end.json", inputs, [stored, options.data_dir / FRONT_END_RECORD])
    if stage.is_done():
        read_parameters(front_end, stored)
    else:
        stage.begin()
        if not is_fitted:
            cuts = [cut for part in parts for cut in cuts_of_part(options.data_dir, part)]
            fit_front_end(front_end, cuts, options.data_dir, options.nj)
        store_front_end(front_end, options.data_dir)
        stage.finish()
    return FrontEndExtractor(front_end), front_end.fingerprint()


def store_part(
    options: FeatureOptions, part: str, factors: list[float], inputs: dict[str, Any], extractor: "Extractor | None"
) -> None:
    """Store the features of one part unless that was done."""
    stage = part_stage(options.data_dir, part, inputs)
    if stage.is_done():
        print(f"Features of {part}: complete")
        return
    # Imported late: lhotse takes seconds, which a finished stage does not need.
    from transducer_gn.config import StorageConfig
    from transducer_gn.data.features import change_speed, cuts_of_part, store_audio_alone, store_features

    stage.begin()
    cuts = cuts_of_part(options.data_dir, part)
    cuts += [change_speed(cut, factor) for factor in factors for cut in list(cuts)]
    if inputs.get("stored", True):
        storage = StorageConfig(inputs["tick_power"])
        store_features(cuts, part, inputs, options.data_dir, storage, options.nj, extractor)
    else:
        store_audio_alone(cuts, part, options.data_dir)
    stage.finish()


def store_noise(options: FeatureOptions, inputs: dict[str, Any]) -> None:
    """Store the features of windows of noise unless that was done."""
    stage = part_stage(options.data_dir, "musan", inputs)
    if stage.is_done():
        print("Features of musan: complete")
        return
    from transducer_gn.config import StorageConfig
    from transducer_gn.data.features import noise_recordings, noise_windows, store_features

    stage.begin()
    windows = noise_windows(noise_recordings(options.data_dir))
    store_features(windows, "musan", inputs, options.data_dir, StorageConfig(inputs["tick_power"]), options.nj)
    stage.finish()


def part_stage(data_dir: Path, part: str, inputs: dict[str, Any]) -> Stage:
    """The storing of one part's features."""
    manifest = part_manifest(data_dir, part)
    return Stage(manifest.parent / f".made_{part}.json", inputs, [manifest])
