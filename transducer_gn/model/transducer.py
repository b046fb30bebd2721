"""The Transducer: encoder, predictor and joiner under one roof, and a pretrained front end where there is one."""

from torch import nn

from transducer_gn.config import ModelConfig
from transducer_gn.model.encoder import Encoder
from transducer_gn.model.joiner import Joiner
from transducer_gn.model.moonshine import MOONSHINE_TINY, MoonshineEncoder
from transducer_gn.model.moonshine_features import MoonshineFeatures
from transducer_gn.model.predictor import build_predictor


class Transducer(nn.Module):
    """The parts of a Transducer; blank is id 0 of `vocab_size` ids.

    Attributes:
        front_end: what makes feature vectors, if it has parameters; None for filter banks, which have none
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.vocab_size = config.vocab_size
        self.encoder = Encoder(config.encoder, config.front_end.framing)
        self.predictor = build_predictor(config.predictor, config.vocab_size)
        self.joiner = Joiner(
            config.encoder.dim,
            self.predictor.output_dim,
            config.joiner.dim,
            config.vocab_size,
            config.joiner.blank_prior,
        )
        self.front_end: MoonshineFeatures | None = None
        if config.front_end.kind == "moonshine-tiny":
            self.front_end = MoonshineFeatures(MoonshineEncoder(MOONSHINE_TINY), config.front_end)


def build_model(config: ModelConfig) -> Transducer:
    """The model that `config` describes, with new parameters drawn from torch's global generator.

    Those of a pretrained front end come from elsewhere: a checkpoint, or what prepare.sh stored beside its vectors.
    """
    return Transducer(config)
