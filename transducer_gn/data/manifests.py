"""From a corpus in LibriSpeech's layout to lhotse's recording and supervision manifests."""

import json
from collections.abc import Sequence
from pathlib import Path

from lhotse import Recording, SupervisionSegment
from lhotse.audio import AudioSource
from lhotse.supervision import AlignmentItem

from transducer_gn.common.errors import UserError
from transducer_gn.common.files import write_text
from transducer_gn.common.units import SAMPLING_RATE
from transducer_gn.data.checks import check_all_audio, report_problems
from transducer_gn.data.layout import Problem, Utterance, read_part
from transducer_gn.data.manifest_files import portable_path, write_json_lines


def make_manifests(
    corpus: Path, roles: dict[str, list[str]], data_dir: Path, jobs: int, skip_bad: bool
) -> dict[str, list[tuple[Utterance, int]]]:
    """Check all parts named in `roles`, then write their manifests and `parts.json`; return what was kept.

    With bad input nothing is written but the list of what is bad, unless `skip_bad` says to leave it out.
    """
    kept: dict[str, list[tuple[Utterance, int]]] = {}
    problems: list[Problem] = []
    for part in dict.fromkeys(part for names in roles.values() for part in names):
        utterances, faults = read_part(corpus, part)
        kept[part], audio_faults = check_all_audio(utterances, jobs, f"Checking {part}")
        problems += faults + audio_faults
    problems += drop_duplicates(kept)
    manifests = data_dir / "manifests"
    report_problems(problems, data_dir / "bad_input.txt", skip_bad)
    for part, good in kept.items():
        if not good:
            raise UserError(f"the part {part} of {corpus} has no good utterance; see {data_dir / 'bad_input.txt'}")
    for part, good in kept.items():
        write_json_lines(
            manifests / f"recordings_{part}.jsonl.gz",
            (recording(utterance, samples, data_dir).to_dict() for utterance, samples in good),
        )
        write_json_lines(
            manifests / f"supervisions_{part}.jsonl.gz",
            (supervision(utterance, samples).to_dict() for utterance, samples in good),
        )
    write_text(data_dir / "parts.json", json.dumps(roles, indent=2) + "\n")
    return kept


def drop_duplicates(kept: dict[str, list[tuple[Utterance, int]]]) -> list[Problem]:
    """Remove utterances whose id another part already has; return them as problems."""
    seen: dict[str, str] = {}
    problems = []
    for part, utterances in kept.items():
        for utterance, _ in utterances:
            if utterance.id in seen:
                problems.append(Problem(str(utterance.audio), f"duplicate utterance id, also in {seen[utterance.id]}"))
        kept[part] = [entry for entry in utterances if entry[0].id not in seen]
        seen |= {utterance.id: part for utterance, _ in kept[part]}
    return problems


def recording(utterance: Utterance, samples: int, data_dir: Path) -> Recording:
    """Return lhotse's description of an utterance's audio file."""
    return Recording(
        id=utterance.id,
        sources=[AudioSource(type="file", channels=[0], source=portable_path(utterance.audio, data_dir))],
        sampling_rate=SAMPLING_RATE,
        num_samples=samples,
        duration=samples / SAMPLING_RATE,
    )


def supervision(utterance: Utterance, samples: int) -> SupervisionSegment:
    """Return lhotse's description of what is said."""
    return SupervisionSegment(
        id=utterance.id,
        recording_id=utterance.id,
        start=0.0,
        duration=samples / SAMPLING_RATE,
        channel=0,
        language="English",
        speaker=utterance.speaker,
        text=utterance.text,
        custom=utterance.custom or None,
        alignment={"word": [AlignmentItem(*word) for word in utterance.words]} if utterance.words else None,
    )


def make_noise_manifest(files: Sequence[Path], data_dir: Path, jobs: int, skip_bad: bool) -> int:
    """Check noise recordings and write `recordings_musan.jsonl.gz`; return how many were kept."""
    noises = [Utterance(file.stem, "noise", file, "") for file in files]
    good, problems = check_all_audio(noises, jobs, "Checking noise")
    report_problems(problems, data_dir / "bad_noise.txt", skip_bad)
    write_json_lines(
        data_dir / "manifests" / "recordings_musan.jsonl.gz",
        (recording(noise, samples, data_dir).to_dict() for noise, samples in good),
    )
    return len(good)
