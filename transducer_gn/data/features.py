"""Features, computed and stored: log mel filter banks (Kaldi's, no dither, 25 ms windows every 10 ms), or others.

Whoever has another front end gives its extractor.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from lhotse import Fbank, FbankConfig, Features, LilcomChunkyWriter, MonoCut, Recording, SupervisionSegment
from lhotse.utils import fastcopy

from transducer_gn.common.errors import UserError
from transducer_gn.common.files import remove_folder, replace_when_done, write_text
from transducer_gn.common.framing import FILTER_BANKS
from transducer_gn.common.processes import run_each
from transducer_gn.common.stages import inputs_text, made_from
from transducer_gn.config import StorageConfig
from transducer_gn.data.cuts import check_recording, check_supervision, read_items, stored_audio
from transducer_gn.data.labels import at_speed
from transducer_gn.data.layout import features_folder, part_manifest
from transducer_gn.data.manifest_files import portable_path, read_json_lines, write_json_lines

CUTS_PER_SHARD = 500
NOISE_WINDOW_SECONDS = 10.0
NOISE_SHORTEST_SECONDS = 5.0


class Extractor(Protocol):
    """What makes the features of an utterance; lhotse's extractors are such."""

    @property
    def name(self) -> str:
        """What manifests call it."""
        ...

    @property
    def frame_shift(self) -> float:
        """Seconds from one feature vector to the next."""
        ...

    def extract(self, samples: np.ndarray, sampling_rate: int) -> np.ndarray:
        """Return the features [T, F] of `samples` [1, N]."""
        ...


def fbank() -> Fbank:
    """Return the extractor of all filter banks: of stored ones, of those on the fly, and of streams."""
    return Fbank(FbankConfig(num_filters=FILTER_BANKS.feature_dim))


def cuts_of_part(data_dir: Path, part: str) -> list[MonoCut]:
    """Return one cut per utterance of a part's manifests; paths are relative to `data_dir`."""
    folder = data_dir / "manifests"
    recordings = list(read_items(folder / f"recordings_{part}.jsonl.gz", Recording, check_recording))
    supervisions = list(read_items(folder / f"supervisions_{part}.jsonl.gz", SupervisionSegment, check_supervision))
    if [recording.id for recording in recordings] != [supervision.recording_id for supervision in supervisions]:
        raise UserError(
            f"recordings and supervisions of {part} in {folder} are not of the same utterances; delete them and run "
            "prepare.sh again"
        )
    return [whole_cut(*both) for both in zip(recordings, [[one] for one in supervisions], strict=True)]


def noise_recordings(data_dir: Path) -> list[Recording]:
    """Return the recordings of noise; paths are relative to `data_dir`."""
    return list(read_items(data_dir / "manifests" / "recordings_musan.jsonl.gz", Recording, check_recording))


def whole_cut(recording: Recording, supervisions: list[SupervisionSegment]) -> MonoCut:
    """Return the cut that covers a whole recording and is named after it."""
    return MonoCut(recording.id, 0.0, recording.duration, 0, supervisions, recording=recording)


def noise_windows(recordings: Sequence[Recording]) -> list[MonoCut]:
    """Cut noise recordings into windows of 10 seconds; rests of 5 seconds or less are left out."""
    windows = []
    for recording in recordings:
        start = 0.0
        while recording.duration - start > NOISE_SHORTEST_SECONDS:
            length = min(NOISE_WINDOW_SECONDS, recording.duration - start)
            windows.append(MonoCut(f"{recording.id}-{int(start):05d}", start, length, 0, [], recording=recording))
            start += NOISE_WINDOW_SECONDS
    return windows


def change_speed(cut: MonoCut, factor: float) -> MonoCut:
    """Return the cut played `factor` times as fast, with the times in its custom fields moved along."""
    changed = cut.perturb_speed(factor)
    supervision = changed.supervisions[0]
    custom = at_speed(supervision.custom or {}, factor)
    return fastcopy(changed, supervisions=[fastcopy(supervision, custom=custom or None)])


def with_features(
    cut: MonoCut, extractor: Extractor, writer: LilcomChunkyWriter, data_dir: Path, storage: str
) -> MonoCut:
    """Compute and store a cut's features; `storage` is the path by which the manifest will know them."""
    matrix = extractor.extract(stored_audio(cut.with_recording_path_prefix(data_dir))[None], cut.sampling_rate)
    features = Features(
        type=extractor.name,
        num_frames=matrix.shape[0],
        num_features=matrix.shape[1],
        frame_shift=extractor.frame_shift,
        sampling_rate=cut.sampling_rate,
        start=cut.start,
        duration=cut.duration,
        storage_type=writer.name,
        storage_path=storage,
        storage_key=writer.write(cut.id, matrix),
        recording_id=cut.recording_id,
        channels=0,
    )
    return fastcopy(cut, features=features)


def write_shard(
    cuts: Sequence[MonoCut], folder: Path, number: int, data_dir: Path, settings: StorageConfig, extractor: Extractor
) -> None:
    """Write the features of one shard, then the manifest that declares them complete."""
    torch.set_num_threads(1)
    archive = folder / f"{number:05d}.lca"
    storage = portable_path(archive, data_dir)
    with (
        replace_when_done(archive) as sibling,
        LilcomChunkyWriter(sibling, tick_power=settings.tick_power) as writer,
    ):
        done = [with_features(cut, extractor, writer, data_dir, storage) for cut in cuts]
    write_json_lines(folder / f"{number:05d}.jsonl.gz", (cut.to_dict() for cut in done))


def store_features(
    cuts: Sequence[MonoCut],
    name: str,
    inputs: dict[str, Any],
    data_dir: Path,
    settings: StorageConfig,
    jobs: int,
    extractor: Extractor | None = None,
) -> None:
    """Store the features of `cuts`, filter banks unless another extractor is given, and write their manifest.

    The work is cut into shards that do not depend on `jobs`; shards finished by an interrupted call are kept if
    they were made from the same `inputs`.
    """
    folder = features_folder(data_dir) / name
    record, inputs = folder / "inputs.json", inputs | asdict(settings)
    if not made_from(record, inputs):
        remove_folder(folder)
        folder.mkdir(parents=True)
        write_text(record, inputs_text(inputs))
    shards = [cuts[start : start + CUTS_PER_SHARD] for start in range(0, len(cuts), CUTS_PER_SHARD)]
    manifests = [folder / f"{number:05d}.jsonl.gz" for number in range(len(shards))]
    missing = [number for number, manifest in enumerate(manifests) if not manifest.is_file()]
    extractor = extractor or fbank()
    tasks = [(shards[number], folder, number, data_dir, settings, extractor) for number in missing]
    run_each(write_shard, tasks, jobs, f"Features of {name} (shards)")
    everything = (cut for manifest in manifests for cut in read_json_lines(manifest))
    write_json_lines(part_manifest(data_dir, name), everything)


def store_audio_alone(cuts: Sequence[MonoCut], name: str, data_dir: Path) -> None:
    """Write the manifest of `cuts` without features, for a front end that is trained along."""
    manifest = part_manifest(data_dir, name)
    remove_folder(manifest.parent / name)
    manifest.parent.mkdir(parents=True, exist_ok=True)
    write_json_lines(manifest, (cut.to_dict() for cut in cuts))
