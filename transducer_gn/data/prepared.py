"""A folder that prepare.sh made: which parts it has, their cuts, and its token models."""

from dataclasses import dataclass
from pathlib import Path

from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.lazy import LazyManifestIterator, LazyMapper

from transducer_gn.common.errors import UserError
from transducer_gn.data.layout import read_roles
from transducer_gn.data.tokenizer import Tokenizer


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
        return self._read(self.folder / "cuts_train.jsonl.gz")

    def cuts(self, part: str) -> CutSet:
        """Return the cuts of one part, read as they are used."""
        return self._read(self.folder / "fbank" / f"cuts_{part}.jsonl.gz")

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
        return self._read(self.folder / "fbank" / "cuts_musan.jsonl.gz")

    def tokenizer(self, vocab_size: int, model_type: str = "unigram") -> Tokenizer:
        """Return the token model of this size."""
        return Tokenizer.load(self.folder / f"lang_{model_type}_{vocab_size}")

    def _read(self, path: Path) -> CutSet:
        if not path.is_file():
            raise UserError(f"there is no {path}; run ./prepare.sh for this corpus to the end")
        return CutSet(LazyMapper(LazyManifestIterator(path), WithFolder(self.folder.resolve())))


@dataclass(frozen=True)
class WithFolder:
    """Puts a folder before a cut's relative paths. A class and not a function inside one, so that it pickles."""

    folder: Path

    def __call__(self, cut: Cut) -> Cut:
        cut = cut.with_recording_path_prefix(self.folder)
        return cut.with_features_path_prefix(self.folder) if cut.has_features else cut
