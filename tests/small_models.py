"""Models that are small enough for tests, with every part that the large ones have."""

from dataclasses import replace

import torch

from transducer_gn.common.framing import FILTER_BANKS
from transducer_gn.config import EncoderConfig, JoinerConfig, ModelConfig, PredictorConfig, StreamingConfig
from transducer_gn.model.encoder import Encoder

SMALL_FRAMING = replace(FILTER_BANKS, feature_dim=16)
SMALL_ENCODER = EncoderConfig(dim=24, attention_dim=32, heads=4, feedforward_dim=40, layers=3, kernel=5)


def shaken(module: torch.nn.Module, size: float = 0.05) -> torch.nn.Module:
    """The module with all parameters moved a little, away from special initial values such as equal scales."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(size * torch.randn_like(parameter))
    return module


def small_encoder(seed: int = 0, **changes: object) -> Encoder:
    """An encoder in evaluation mode; `changes` are settings of `EncoderConfig`."""
    torch.manual_seed(seed)
    config = EncoderConfig(**{**vars(SMALL_ENCODER), **changes})
    return shaken(Encoder(config, SMALL_FRAMING)).eval()


def small_model_config() -> ModelConfig:
    """A whole Transducer."""
    return ModelConfig(
        vocab_size=11,
        encoder=SMALL_ENCODER,
        streaming=StreamingConfig(chunk=4, left_context=8),
        predictor=PredictorConfig(embedding_dim=12, dim=10, layers=2),
        joiner=JoinerConfig(dim=14),
    )
