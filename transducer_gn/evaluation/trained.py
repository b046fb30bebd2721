"""A recogniser from what training left behind: one checkpoint holds parameters, settings and token model."""

from dataclasses import dataclass
from pathlib import Path

import torch

from transducer_gn.config import EncoderConfig, JoinerConfig, ModelConfig, PredictorConfig, StreamingConfig
from transducer_gn.data.tokenizer import Tokenizer
from transducer_gn.model.transducer import Transducer, build_model
from transducer_gn.training.checkpoint import load_checkpoint


@dataclass(frozen=True)
class Trained:
    """A model in evaluation mode, with what it was trained with.

    Attributes:
      alpha: weight of local normalisation that training aimed at.
    """

    model: Transducer
    config: ModelConfig
    tokenizer: Tokenizer
    alpha: float


def load_trained(path: Path, average: bool = False) -> Trained:
    """Read a checkpoint; `average` takes the running average of the parameters instead of the last ones."""
    content = load_checkpoint(path)
    config = model_config(content["config"]["model"])
    model = build_model(config)
    model.load_state_dict(content["model"])
    if average:
        model.load_state_dict(content["average"]["parameters"], strict=False)
    return Trained(
        model=model.eval().requires_grad_(False),
        config=config,
        tokenizer=Tokenizer(bytes(content["tokenizer"].to(torch.uint8).numpy().tobytes())),
        alpha=content["config"]["normalisation"]["alpha"],
    )


def model_config(values: dict) -> ModelConfig:
    """The settings of a model from what a checkpoint says about them."""
    sections = {
        "encoder": EncoderConfig,
        "streaming": StreamingConfig,
        "predictor": PredictorConfig,
        "joiner": JoinerConfig,
    }
    built = {name: section(**values[name]) for name, section in sections.items()}
    return ModelConfig(**{**values, **built})
