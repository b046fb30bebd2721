"""The Transducer: encoder, predictor and joiner under one roof."""

from torch import nn

from transducer_gn.config import ModelConfig
from transducer_gn.model.encoder import Encoder
from transducer_gn.model.joiner import Joiner
from transducer_gn.model.predictor import build_predictor


class Transducer(nn.Module):
    """The parts of a Transducer; blank is id 0 of `vocab_size` ids."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.vocab_size = config.vocab_size
        self.encoder = Encoder(config.encoder)
        self.predictor = build_predictor(config.predictor, config.vocab_size)
        self.joiner = Joiner(
            config.encoder.dim,
            self.predictor.output_dim,
            config.joiner.dim,
            config.vocab_size,
            config.joiner.blank_prior,
        )


def build_model(config: ModelConfig) -> Transducer:
    """The model that `config` describes, with new parameters drawn from torch's global generator."""
    return Transducer(config)
