"""Batches of features and tokens, in an order that can be stopped and resumed anywhere."""

import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.features import FeatureExtractor
from lhotse.utils import LOG_EPSILON
from torch.utils.data import Dataset

from transducer_gn.common.errors import UserError, require
from transducer_gn.common.framing import FILTER_BANKS, Framing
from transducer_gn.common.seeds import stable_seed
from transducer_gn.common.units import BLANK
from transducer_gn.config import BatchConfig, FrontEndConfig
from transducer_gn.data.augmentation import change_volume, mix_noise, one_thread
from transducer_gn.data.cuts import named_audio, stored_audio, stored_features
from transducer_gn.data.epoch_plan import EpochPlan
from transducer_gn.data.features import change_speed, fbank
from transducer_gn.data.filtering import Usable, Utterances, usable_cuts
from transducer_gn.data.index import ManifestIndex
from transducer_gn.data.labels import group_of, unit_of
from transducer_gn.data.loading import load
from transducer_gn.data.sampling import EpochSampler
from transducer_gn.data.spec_augment import spec_augment
from transducer_gn.data.tokenizer import Tokenizer


@dataclass(frozen=True)
class Batch:
    """Some utterances, longest first.

    Attributes:
        features: [B, T', F] feature vectors, float32; what lies beyond an utterance's length is padding. [B, N] samples
            where the front end is trained along
        feature_lengths: [B] feature vectors, or samples, of each utterance, int64
        tokens: [B, U] token ids, int64, padded with 0
        token_lengths: [B] tokens of each utterance, int64
        texts: transcripts
        ids: utterance ids
        groups: the group of each utterance, for error rates by group
        units: the unit of each utterance: those of one unit share some of their sound and are drawn together
        durations: [B] seconds of each utterance, float32
        custom: all that the manifest says besides about each utterance
    """

    features: torch.Tensor
    feature_lengths: torch.Tensor
    tokens: torch.Tensor
    token_lengths: torch.Tensor
    texts: list[str]
    ids: list[str]
    groups: list[str]
    units: list[str]
    durations: torch.Tensor
    custom: list[dict[str, Any]]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def is_audio(self) -> bool:
        """Whether it holds samples."""
        return self.features.dim() == 2

    def to(self, device: torch.device | str) -> "Batch":
        """Return the batch with its tensors on `device`."""
        names = ("features", "feature_lengths", "tokens", "token_lengths", "durations")
        return replace(self, **{name: getattr(self, name).to(device, non_blocking=True) for name in names})

    def pin_memory(self) -> "Batch":
        """Return the batch in page-locked memory, from which copies to a GPU overlap with its work."""
        names = ("features", "feature_lengths", "tokens", "token_lengths", "durations")
        return replace(self, **{name: getattr(self, name).pin_memory() for name in names})


@dataclass(frozen=True)
class NumberedCuts:
    """The cuts of one batch; epoch and number over all ranks identify it."""

    epoch: int
    number: int
    cuts: Iterable[Cut]


@dataclass(frozen=True)
class Inputs:
    """What utterances become batches of.

    Attributes:
        framing: of the features that were stored
        audio: give samples instead of features
        noise: noise to mix in where the settings say so
    """

    framing: Framing = FILTER_BANKS
    audio: bool = False
    noise: CutSet | None = None

    @classmethod
    def of(cls, front_end: FrontEndConfig, noise: CutSet | None = None) -> "Inputs":
        """Those of a front end."""
        return cls(front_end.framing, front_end.is_trained, noise)

    def check(self, settings: BatchConfig) -> None:
        """Refuse what only filter banks can do: the sum of two sounds, or another loudness, from stored features."""
        for name, wanted in (
            ("on_the_fly", settings.on_the_fly),
            ("noise.enabled", settings.noise.enabled),
            ("volume.enabled", settings.volume.enabled),
        ):
            require(
                not wanted or self.framing == FILTER_BANKS,
                f"data.batches.{name}",
                "only filter banks can do that, and the features are those of a pretrained front end; switch it off",
            )
        require(
            not settings.speeds or self.audio,
            "data.batches.speeds",
            "needs a front end that is trained along (model.front_end.freeze: false); for stored features, leave it "
            "out and give prepare.sh --speed-factors",
        )


FILTER_BANK_INPUTS = Inputs()


class BatchDataset(Dataset[Batch]):
    """Makes a `Batch` from numbered cuts; the same cuts with the same number give the same batch anywhere."""

    def __init__(self, tokenizer: Tokenizer, settings: BatchConfig, augment: bool, inputs: Inputs) -> None:
        inputs.check(settings)
        self._tokenizer = tokenizer
        self._settings = settings
        self._audio = inputs.audio
        self._extractor = fbank() if settings.on_the_fly else None
        self._noise: list[Cut] = []
        if augment and settings.noise.enabled:
            if inputs.noise is None:
                raise UserError("noise.enabled needs noise; run prepare.sh with --musan, or switch it off")
            self._noise = list(inputs.noise)
        self._speeds = settings.speeds if augment else ()
        self._volume = settings.volume if augment and settings.volume.enabled else None
        # Masks are for features: whoever makes them of audio adds the masks.
        self._masks = settings.spec_augment if augment and settings.spec_augment.enabled and not inputs.audio else None

    def __getitem__(self, numbered: NumberedCuts) -> Batch:
        with one_thread():
            return self._make(numbered)

    def _make(self, numbered: NumberedCuts) -> Batch:
        draw = random.Random(stable_seed("batch", self._settings.seed, numbered.epoch, numbered.number))
        heard = at_drawn_speeds(numbered.cuts, self._speeds, draw) if self._speeds else numbered.cuts
        cuts = CutSet.from_cuts(sorted(heard, key=lambda cut: (-cut.duration, cut.id)))
        supervisions = [cut.supervisions[0] for cut in cuts]
        custom = [supervision.custom or {} for supervision in supervisions]
        mixed = mix_noise(cuts, self._noise, self._settings.noise, draw) if self._noise else cuts
        features, lengths = collate_audio(mixed) if self._audio else collate_features(mixed, self._extractor)
        if self._volume is not None:
            features = change_volume(features, self._volume, draw)
        if self._masks is not None:
            features = spec_augment(features, lengths, self._masks, draw)
        tokens = [torch.tensor(self._tokenizer.encode(supervision.text)) for supervision in supervisions]
        return Batch(
            features=features,
            feature_lengths=lengths,
            tokens=torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True, padding_value=BLANK).long(),
            token_lengths=torch.tensor([len(ids) for ids in tokens]),
            texts=[supervision.text for supervision in supervisions],
            ids=[cut.id for cut in cuts],
            groups=[group_of(fields) for fields in custom],
            units=[unit_of(cut.id, fields) for cut, fields in zip(cuts, custom, strict=True)],
            durations=torch.tensor([cut.duration for cut in cuts]),
            custom=custom,
        )


def at_drawn_speeds(cuts: Iterable[Cut], speeds: Sequence[float], draw: random.Random) -> list[Cut]:
    """Each cut at one of `speeds`; their ids stay."""
    drawn = [(cut, draw.choice(speeds)) for cut in cuts]
    return [cut if speed == 1 else change_speed(cut, speed).with_id(cut.id) for cut, speed in drawn]


def collate_features(cuts: Iterable[Cut], extractor: FeatureExtractor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the features of cuts [B, T', F] and their lengths [B]: stored ones, or computed from audio.

    One utterance at a time: extractors of whole batches let the padding into an utterance's last frame.
    """
    if not extractor and (bare := next((cut.id for cut in cuts if not cut.has_features), None)):
        raise UserError(
            f"{bare} has no stored features: prepare.sh ran with settings that train the front end along "
            "(model.front_end.freeze: false); run it with this system's, in a data folder of its own"
        )
    matrices = [torch.from_numpy(computed(cut, extractor) if extractor else stored_features(cut)) for cut in cuts]
    padded = torch.nn.utils.rnn.pad_sequence(matrices, batch_first=True, padding_value=LOG_EPSILON)
    return padded, torch.tensor([len(matrix) for matrix in matrices])


def computed(cut: Cut, extractor: FeatureExtractor) -> np.ndarray:
    """Return the features [T', F] of a cut, computed from its audio."""
    with named_audio(cut):
        return cut.compute_features(extractor)


def collate_audio(cuts: Iterable[Cut]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the samples of cuts [B, N] and their lengths [B]."""
    samples = [torch.from_numpy(stored_audio(cut)) for cut in cuts]
    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True), torch.tensor([len(row) for row in samples])


def settings_identity(settings: BatchConfig) -> dict[str, Any]:
    """What batches depend on of `settings`. Those that did not exist yet are left out where they change nothing."""
    values = asdict(settings)
    if not settings.speeds:
        del values["speeds"]
    return values


class ResumableBatches(ABC):
    """This rank's batches of any epoch from any position on, always the same.

    Nothing here remembers a position: whoever trains knows how many batches of which epoch are done. Iterating over the
    object itself yields the first epoch, which is all of it where nothing is shuffled.
    """

    @abstractmethod
    def starting_at(self, epoch: int, batch: int = 0) -> Iterable[Batch]:
        """Return the batches of `epoch` but the first `batch`."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return everything that the sequence of batches depends on."""

    @abstractmethod
    def count(self, epoch: int) -> int:
        """Return the number of this rank's batches in an epoch."""

    def largest(self, epoch: int) -> list[Batch]:
        """Return the batches of an epoch that need most memory, where they can be told without reading the data."""
        return []

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.starting_at(epoch=0))

    def check_identity(self, before: Mapping[str, Any]) -> None:
        """Refuse data or settings that would give other batches than those whose `identity` was `before`."""
        for name, value in self.identity().items():
            if before.get(name) != value:
                raise UserError(
                    f"cannot resume: {name} was {before.get(name)} and is now {value}, "
                    "so the batches left would be others; use the same data and settings, or start a new run"
                )


@dataclass(frozen=True)
class PlannedBatches(Dataset[Batch]):
    """The batches of one epoch of one rank, by their number in the plan; whoever wants one reads its cuts.

    Attributes:
        dataset: makes batches
        utterances: what they are made of
        plan: which of them form which batch
        epoch: the epoch
        rank: this process's number
        world_size: number of processes that train together
    """

    dataset: BatchDataset
    utterances: Utterances
    plan: EpochPlan
    epoch: int
    rank: int
    world_size: int

    def __getitem__(self, number: int) -> Batch:
        cuts = [self._cut(position, copy) for position, copy in self.plan.batch(number)]
        return self.dataset[NumberedCuts(self.epoch, number * self.world_size + self.rank, cuts)]

    def _cut(self, position: int, copy: str) -> Cut:
        cut = self.utterances.cut(position)
        return cut.with_id(cut.id + copy) if copy else cut


class Batches(ResumableBatches):
    """All batches of a manifest.

    With several ranks each sees its own batches. In training all see the same number of them, and if an epoch's last
    batches hold fewer utterances than there are ranks, some of those come twice, with "_dup0" added to their ids.
    Otherwise no utterance comes twice, and one rank may have a batch more than another.

    An epoch is planned before anything is read of it, so that its batches are counted at once and a resumed run begins
    where the other stopped.

    Args:
        cuts: utterances, best read lazily, or an index of many; see `PreparedData`
        tokenizer: turns texts into tokens
        settings: how batches are made
        training: training batches are shuffled, filtered and augmented; others are none of that
        inputs: features and noise
        rank: this process's number
        world_size: number of processes that train together
    """

    def __init__(
        self,
        cuts: CutSet | ManifestIndex,
        tokenizer: Tokenizer,
        settings: BatchConfig,
        *,
        training: bool,
        inputs: Inputs = FILTER_BANK_INPUTS,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self._settings = settings
        self._token_model = tokenizer.fingerprint
        self._training = training
        self._rank, self._world_size = rank, world_size
        self._dataset = BatchDataset(tokenizer, settings, training, inputs)
        self.utterances, self.report = usable_cuts(cuts, Usable(tokenizer, settings, inputs.framing), training)
        self._sampler = EpochSampler(self.utterances.durations, settings, training, rank, world_size)

    def plan(self, epoch: int) -> EpochPlan:
        """Return which of `utterances` form which of this rank's batches."""
        return self._sampler.plan(epoch)

    def count(self, epoch: int) -> int:
        """Look it up in the plan."""
        return len(self.plan(epoch))

    def largest(self, epoch: int) -> list[Batch]:
        """Return those with most audio, padding included, and with the longest utterance."""
        planned = self._planned(epoch)
        return [planned[number] for number in planned.plan.largest(self.utterances.durations)]

    def starting_at(self, epoch: int, batch: int = 0) -> Iterable[Batch]:
        """Load them, with the configured number of processes."""
        planned = self._planned(epoch)
        return load(planned, self._settings.num_workers, range(batch, len(planned.plan)))

    def identity(self) -> dict[str, Any]:
        """Batches do not depend on the number of workers."""
        settings = {name: value for name, value in settings_identity(self._settings).items() if name != "num_workers"}
        utterances = {"utterances": self.report.fingerprint, "token model": self._token_model}
        return settings | utterances | {"world size": self._world_size, "training": self._training}

    def _planned(self, epoch: int) -> PlannedBatches:
        return PlannedBatches(self._dataset, self.utterances, self.plan(epoch), epoch, self._rank, self._world_size)
