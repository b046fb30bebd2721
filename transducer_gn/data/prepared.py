"""A folder that prepare.sh made: which parts it has, their cuts, the front end of their features, its token models."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.lazy import LazyMapper

from transducer_gn.common.errors import UserError
from transducer_gn.common.json_files import read_json
from transducer_gn.common.stages import file_fingerprint
from transducer_gn.data.cuts import read_cut
from transducer_gn.data.epoch_plan import SMALL_CORPUS, is_small
from transducer_gn.data.index import ManifestIndex, stored_index
from transducer_gn.data.layout import FILTER_BANKS_RECORD, FRONT_END_RECORD, part_manifest, read_roles
from transducer_gn.data.manifest_files import read_json_lines, read_lines
from transducer_gn.data.tokenizer import Tokenizer

TRAINING_MANIFEST = "cuts_train.jsonl.gz"


@dataclass(frozen=True)
class PreparedData:
    """The results of prepare.sh in `folder`.

    Manifests hold paths relative to the folder, so that it can be moved; cuts come with full paths.
    """

    folder: Path

    def parts(self, role: str) -> list[str]:
        """Return the parts for "train", "dev" or "test"."""
        return read_roles(self.folder)[role]

    def train_cuts(self) -> CutSet:
        """Return all training cuts, speed-perturbed copies included, in shuffled order; read as they are used."""
        return self._read(self.folder / TRAINING_MANIFEST)

    def training_utterances(self) -> CutSet | ManifestIndex:
        """Return all training cuts in the same order: to be read one after another if they are few, else an index.

        `prepare.sh` makes the index of a large manifest; where there is none, it is made now.
        """
        manifest, folder = self.folder / TRAINING_MANIFEST, self.folder / "cuts_train.index"
        cuts = self.train_cuts()
        if is_small(sum(1 for _ in islice(read_lines(manifest), SMALL_CORPUS + 1))):
            return cuts
        resolve = WithFolder(self.folder.resolve())
        try:
            return stored_index(lambda: read_lines(manifest), file_fingerprint(manifest), folder, resolve)
        except PermissionError:
            logging.warning("%s cannot be written to; run prepare.sh again to spare every start an index", self.folder)
            return cuts

    def cuts(self, part: str) -> CutSet:
        """Return the cuts of one part, read as they are used."""
        return self._read(part_manifest(self.folder, part))

    def word_ends(self, part: str) -> dict[str, list[float]]:
        """Return when the words of each utterance end, in seconds, by its id; only of those that have alignments."""
        ends = {}
        for cut in self.cuts(part):
            supervision = cut.supervisions[0]
            words = (supervision.alignment or {}).get("word", [])
            if words and [item.symbol for item in words] == supervision.text.split():
                ends[cut.id] = [round(item.start + item.duration, 4) for item in words]
        return ends

    def noise_cuts(self) -> CutSet:
        """Return the windows of noise."""
        path = part_manifest(self.folder, "musan")
        if not path.is_file():
            raise UserError(
                f"data.batches.noise.enabled is true, but {self.folder} has no noise ({path.name}); run ./prepare.sh "
                "with --musan for this corpus, or say --data.batches.noise.enabled false"
            )
        return self._read(path, is_spoken=False)

    def front_end(self) -> dict[str, Any]:
        """Return all that the features depend on, as the front end that made them says."""
        path = self.folder / FRONT_END_RECORD
        # Filter banks have no record: folders from before there were others have none.
        if not path.is_file():
            return FILTER_BANKS_RECORD
        try:
            return read_json(path, dict[str, Any])
        except ValueError as error:
            raise UserError(f"{path} does not say what made the features: {error}; run prepare.sh again") from error

    def tokenizer(self, vocab_size: int, model_type: str = "unigram") -> Tokenizer:
        """Return the token model of this size."""
        return Tokenizer.load(self.folder / f"lang_{model_type}_{vocab_size}")

    def _read(self, path: Path, is_spoken: bool = True) -> CutSet:
        if not path.is_file():
            raise UserError(f"there is no {path}; run ./prepare.sh for this corpus to the end")
        return CutSet(LazyMapper(NumberedItems(path), AsCut(path, WithFolder(self.folder.resolve()), is_spoken)))


@dataclass(frozen=True)
class WithFolder:
    """Puts a folder before a cut's relative paths. A class and not a function inside one, so that it pickles."""

    folder: Path

    def __call__(self, cut: Cut) -> Cut:
        cut = cut.with_recording_path_prefix(self.folder)
        return cut.with_features_path_prefix(self.folder) if cut.has_features else cut


@dataclass(frozen=True)
class NumberedItems:
    """The objects of a manifest with the numbers of their lines, read anew each time."""

    path: Path

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        return enumerate(read_json_lines(self.path), start=1)

    def __len__(self) -> int:
        return sum(1 for _ in read_lines(self.path))


@dataclass(frozen=True)
class AsCut:
    """Makes the cut of a manifest's line; UserError names a line that holds none.

    Attributes:
        path: the manifest
        resolve: completes a cut
        is_spoken: whether a cut must say what is said in it; noise does not
    """

    path: Path
    resolve: WithFolder
    is_spoken: bool

    def __call__(self, item: tuple[int, dict[str, Any]]) -> Cut:
        number, values = item
        try:
            return read_cut(values, self.resolve, self.is_spoken)
        except ValueError as error:
            raise UserError(f"{self.path}, line {number} is no cut ({error}); run prepare.sh again") from error
