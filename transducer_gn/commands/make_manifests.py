"""Stage 1: check a corpus in LibriSpeech's layout and write recording and supervision manifests."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transducer_gn.common.command_line import CommandParser, command_parser, settings_from
from transducer_gn.common.processes import default_jobs
from transducer_gn.common.stages import Stage, listing_fingerprint
from transducer_gn.common.units import SAMPLING_RATE
from transducer_gn.data.layout import ROLES, assign_roles, find_parts, part_files


@dataclass(frozen=True)
class ManifestOptions:
    """Check a corpus and write its manifests.

    Attributes:
        corpus_dir: the folder that holds the parts
        data_dir: where to write; manifests name files below it by relative paths
        nj: processes at a time; the result does not depend on it
        train: parts for training; by default those whose names start with train
        dev: parts for development; by default those whose names start with dev
        test: parts for testing; by default those whose names start with test
        skip_bad: leave bad utterances out instead of stopping
    """

    corpus_dir: Path
    data_dir: Path
    nj: int = default_jobs()
    train: list[str] | None = None
    dev: list[str] | None = None
    test: list[str] | None = None
    skip_bad: bool = False


def parser() -> CommandParser:
    """Flags of the command."""
    return command_parser(__doc__, ManifestOptions)


def main(arguments: list[str] | None = None) -> None:
    """Check a corpus and write its manifests."""
    options = settings_from(ManifestOptions, parser().parse_args(arguments))
    parts = find_parts(options.corpus_dir)
    chosen: dict[str, Sequence[str]] = {
        role: names
        for role, names in zip(ROLES, (options.train, options.dev, options.test), strict=True)
        if names is not None
    }
    roles = assign_roles(parts, chosen)
    used = dict.fromkeys(part for names in roles.values() for part in names)
    inputs = {
        "corpus": str(options.corpus_dir.resolve()),
        "roles": roles,
        "skip_bad": options.skip_bad,
        "files": {part: listing_fingerprint(options.corpus_dir, part_files(options.corpus_dir, part)) for part in used},
    }
    kinds = ("recordings", "supervisions")
    outputs = [options.data_dir / "manifests" / f"{kind}_{part}.jsonl.gz" for kind in kinds for part in used]
    stage = Stage(options.data_dir / "manifests" / ".made.json", inputs, [*outputs, options.data_dir / "parts.json"])
    if stage.is_done():
        print(f"Manifests: {options.data_dir / 'manifests'} is complete")
        return
    for role in ROLES:
        print(f"Parts for {role}: {', '.join(roles[role]) or 'none'}")
    if unused := [part for part in parts if part not in used]:
        print(f"Parts not used: {', '.join(unused)} (--train, --dev and --test choose)")
    # Imported late: lhotse takes seconds, which a finished stage does not need.
    from transducer_gn.data.manifests import make_manifests

    stage.begin()
    for part, utterances in make_manifests(
        options.corpus_dir, roles, options.data_dir, options.nj, options.skip_bad
    ).items():
        hours = sum(samples for _, samples in utterances) / SAMPLING_RATE / 3600
        print(f"{part}: {len(utterances)} utterances, {hours:.2f} hours")
    stage.finish()
