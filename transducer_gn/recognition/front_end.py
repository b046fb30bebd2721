"""The front end of a system, and whether stored feature vectors are those that it makes."""

from collections.abc import Sequence
from typing import cast

from torch import Tensor

from transducer_gn.common.errors import UserError
from transducer_gn.common.framing import FILTER_BANKS, Framing
from transducer_gn.data.prepared import PreparedData
from transducer_gn.model.front_end import FrontEnd, OnlineFeatures
from transducer_gn.model.transducer import Transducer
from transducer_gn.recognition.filter_banks import OnlineFbank


class FilterBanks:
    """The front end `filter-banks`, which satisfies the protocol `FrontEnd`."""

    framing: Framing = FILTER_BANKS
    is_batched = False

    def compute(self, samples: Tensor) -> Tensor:
        """Filter banks [T, 80] of a whole utterance of `samples` [N]."""
        stream = self.open()
        stream.accept(samples)
        stream.finish()
        return stream.take()

    def open(self) -> OnlineFbank:
        """A new stream."""
        return OnlineFbank()

    def advance(self, streams: Sequence[OnlineFeatures]) -> list[Tensor]:
        """The new filter banks [n, 80] of each stream."""
        return [stream.take() for stream in cast(Sequence[OnlineFbank], streams)]

    def fingerprint(self) -> dict[str, object]:
        """All that the features depend on."""
        return {"front_end": "filter-banks"}


def front_end_of(model: Transducer) -> FrontEnd:
    """What makes a model's feature vectors."""
    return model.front_end or FilterBanks()


def check_features(data: PreparedData, front_end: FrontEnd) -> None:
    """Refuse prepared data whose features are not those of this front end."""
    found, wanted = data.front_end(), front_end.fingerprint()
    different = [name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)]
    if different:
        values = {name: (_short(found.get(name)), _short(wanted.get(name))) for name in sorted(different)}
        listed = "; ".join(f"{name} is {theirs}, not {ours}" for name, (theirs, ours) in values.items())
        raise UserError(
            f"{data.folder} holds features of another front end than this system's: {listed}. Choose other data or "
            "settings, or run prepare.sh with this system's; --front-end-file takes front_end.pt of its training data, "
            "or its checkpoint"
        )


def _short(value: object) -> str:
    """A value for a sentence; of checksums only the beginning."""
    return f"{value[:8]}..." if isinstance(value, str) and len(value) == 64 else str(value)
