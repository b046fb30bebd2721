"""Trained systems on disk that are small enough for tests; their weights are random."""

from pathlib import Path

import torch
from small_models import shaken

from transducer_gn.config import Config, EncoderConfig, JoinerConfig, ModelConfig, PredictorConfig, StreamingConfig
from transducer_gn.data.tokenizer import train_tokenizer
from transducer_gn.model.transducer import build_model
from transducer_gn.recognition.averaging import RunningAverage
from transducer_gn.recognition.checkpoint import Checkpoint, Progress, TrainingState


def write_checkpoint(path: Path, causal: bool = True, shake: float = 0.4) -> None:
    """Write the checkpoint of a tiny model; one that is not causal looks ahead and has no chunks.

    The more it is shaken, the more do small errors grow on their way through it.
    """
    torch.manual_seed(6)
    words = "THE CAT SAT ON MAT DOG BIT SEA".split()
    tokenizer = train_tokenizer([" ".join([word] * 9) for word in words] * 20, 30)
    model_config = ModelConfig(
        vocab_size=tokenizer.vocab_size,
        encoder=EncoderConfig(dim=16, attention_dim=16, heads=2, feedforward_dim=24, layers=2, kernel=7, causal=causal),
        streaming=StreamingConfig(chunk=4, left_context=8)
        if causal
        else StreamingConfig(dynamic_chunks=False, chunk=None, left_context=None),
        predictor=PredictorConfig(embedding_dim=8, dim=12, layers=1),
        joiner=JoinerConfig(dim=16),
    )
    # Far from initial values, at which frames hardly differ and the same token comes out at each.
    model = shaken(build_model(model_config), shake)
    with torch.no_grad():
        model.joiner.output.weight.log_scale += 1
        bias = model.joiner.output.bias.value
        bias[0] += 2.5
        # None of the pieces that stand for no text, and more words than parts of words.
        bias[[piece in ("<sos/eos>", "<unk>", "\u2581") for piece in tokenizer.pieces]] -= 20
        bias[[piece.startswith("\u2581") for piece in tokenizer.pieces]] += 1.5
    checkpoint = Checkpoint(
        config=Config(model=model_config),
        progress=Progress(epoch=1),
        model=model.state_dict(),
        average=RunningAverage(model).state_dict(),
        tokenizer=tokenizer.model,
        training=TrainingState({}, {}, {}, {}, {}, [], []),
    )
    checkpoint.save(path)
