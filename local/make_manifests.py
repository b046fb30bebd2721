#!/usr/bin/env python3
"""Stage 1: check a corpus in LibriSpeech's layout and write recording and supervision manifests."""

from pathlib import Path

from transducer_gn.common.command_line import run_program
from transducer_gn.common.processes import default_jobs
from transducer_gn.common.stages import Stage, listing_fingerprint
from transducer_gn.common.units import SAMPLING_RATE
from transducer_gn.data.layout import ROLES, assign_roles, find_parts, part_files


def main(
    corpus_dir: Path,
    data_dir: Path,
    nj: int = default_jobs(),
    train: list[str] | None = None,
    dev: list[str] | None = None,
    test: list[str] | None = None,
    skip_bad: bool = False,
) -> None:
    """Check a corpus and write its manifests.

    Args:
        corpus_dir: The folder that holds the parts.
        data_dir: Where to write; manifests name files below it by relative paths.
        nj: Processes at a time; the result does not depend on it.
        train: Parts for training; by default those whose names start with train.
        dev: Parts for development; by default those whose names start with dev.
        test: Parts for testing; by default those whose names start with test.
        skip_bad: Leave bad utterances out instead of stopping.
    """
    parts = find_parts(corpus_dir)
    chosen = {role: names for role, names in zip(ROLES, (train, dev, test)) if names is not None}
    roles = assign_roles(parts, chosen)
    used = dict.fromkeys(part for names in roles.values() for part in names)
    inputs = {
        "corpus": str(corpus_dir.resolve()),
        "roles": roles,
        "skip_bad": skip_bad,
        "files": {part: listing_fingerprint(corpus_dir, part_files(corpus_dir, part)) for part in used},
    }
    kinds = ("recordings", "supervisions")
    outputs = [data_dir / "manifests" / f"{kind}_{part}.jsonl.gz" for kind in kinds for part in used]
    stage = Stage(data_dir / "manifests" / ".made.json", inputs, [*outputs, data_dir / "parts.json"])
    if stage.is_done():
        print(f"Manifests: {data_dir / 'manifests'} is complete")
        return
    for role in ROLES:
        print(f"Parts for {role}: {', '.join(roles[role]) or 'none'}")
    if unused := [part for part in parts if part not in used]:
        print(f"Parts not used: {', '.join(unused)} (--train, --dev and --test choose)")
    # Imported late: lhotse takes seconds, which a finished stage does not need.
    from transducer_gn.data.manifests import make_manifests

    stage.begin()
    for part, utterances in make_manifests(corpus_dir, roles, data_dir, nj, skip_bad).items():
        hours = sum(samples for _, samples in utterances) / SAMPLING_RATE / 3600
        print(f"{part}: {len(utterances)} utterances, {hours:.2f} hours")
    stage.finish()


if __name__ == "__main__":
    run_program(main)
