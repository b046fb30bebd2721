"""Count a model's parameters: `python -m transducer_gn.model.count --config conf/librispeech.yaml`."""

import torch
from torch import nn

from transducer_gn.common.errors import run_script
from transducer_gn.config import config_parser, read_config
from transducer_gn.model.transducer import Transducer, build_model


def count(module: nn.Module) -> int:
    """The number of parameters of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


def table(model: Transducer) -> str:
    """Lines with the parameters of each part, and of all."""
    parts = {
        "front-end": model.front_end or nn.Identity(),
        "subsampling": model.encoder.subsampling,
        "layers": model.encoder.layers,
        "predictor": model.predictor,
        "joiner": model.joiner,
        "total": model,
    }
    return "\n".join(f"{name:12s} {count(module):>12,d}" for name, module in parts.items())


def main() -> None:
    """Print the parameters of the model of a configuration."""
    parser = config_parser("Count the parameters of a model.")
    config, _ = read_config(parser)
    # Shapes are enough: nothing is allocated or drawn.
    with torch.device("meta"):
        print(table(build_model(config.model)))


if __name__ == "__main__":
    run_script(main)
