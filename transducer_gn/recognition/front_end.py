"""The front ends that there are, by their settings."""

from pathlib import Path

import torch
from torch import Tensor

from transducer_gn.common.errors import UserError
from transducer_gn.common.framing import FILTER_BANKS, Framing
from transducer_gn.common.stages import file_fingerprint
from transducer_gn.common.units import SAMPLING_RATE
from transducer_gn.config.front_end import FrontEndConfig
from transducer_gn.data.features import fbank
from transducer_gn.model.front_end import FrontEnd
from transducer_gn.model.moonshine_features import MoonshineFeatures
from transducer_gn.model.moonshine_file import HOW_TO_GET_IT, read_moonshine_tiny
from transducer_gn.recognition.filter_banks import OnlineFbank


class FilterBanks:
    """The front end `filter-banks`, which satisfies the protocol `FrontEnd`."""

    framing: Framing = FILTER_BANKS

    def compute(self, samples: Tensor) -> Tensor:
        """Filter banks [T, 80] of a whole utterance of `samples` [N]."""
        return torch.as_tensor(fbank().extract(samples.unsqueeze(0), SAMPLING_RATE))

    def open(self) -> OnlineFbank:
        """A new stream."""
        return OnlineFbank()

    def fingerprint(self) -> dict[str, object]:
        """All that the features depend on."""
        return {"front_end": "filter-banks", "feature_dim": self.framing.feature_dim}


def front_end_of(config: FrontEndConfig) -> FrontEnd:
    """The front end of the given settings; Moonshine's is standardised only once it was fitted or loaded."""
    if config.kind == "filter-banks":
        return FilterBanks()
    if not config.file:
        raise UserError(f"model.front_end.file: moonshine-tiny needs the encoder's file; {HOW_TO_GET_IT}")
    path = Path(config.file)
    return MoonshineFeatures(read_moonshine_tiny(path), config, file_fingerprint(path))
