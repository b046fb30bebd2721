"""Trained systems on disk that are small enough for tests; their weights are random."""

from pathlib import Path

import torch
from small_models import shaken
from small_moonshine import audio

from transducer_gn.config import (
    Config,
    EncoderConfig,
    FrontEndConfig,
    JoinerConfig,
    ModelConfig,
    PredictorConfig,
    StreamingConfig,
)
from transducer_gn.data.batches import Batch
from transducer_gn.data.tokenizer import Tokenizer, train_tokenizer
from transducer_gn.model.transducer import Transducer, build_model
from transducer_gn.recognition.averaging import RunningAverage
from transducer_gn.recognition.checkpoint import Checkpoint, Progress, TrainingState


def small_tokenizer() -> Tokenizer:
    """Thirty pieces."""
    words = "THE CAT SAT ON MAT DOG BIT SEA".split()
    return train_tokenizer([" ".join([word] * 9) for word in words] * 20, 30)


def write_checkpoint(
    path: Path, causal: bool = True, shake: float = 0.4, streaming: StreamingConfig | None = None
) -> None:
    """Write the checkpoint of a tiny model; one that is not causal looks ahead and has no chunks.

    The more it is shaken, the more do small errors grow on their way through it.
    """
    torch.manual_seed(6)
    tokenizer = small_tokenizer()
    model_config = ModelConfig(
        vocab_size=tokenizer.vocab_size,
        encoder=EncoderConfig(dim=16, attention_dim=16, heads=2, feedforward_dim=24, layers=2, kernel=7, causal=causal),
        streaming=streaming
        or (
            StreamingConfig(chunk=4, left_context=8)
            if causal
            else StreamingConfig(dynamic_chunks=False, chunk=None, left_context=None)
        ),
        predictor=PredictorConfig(embedding_dim=8, dim=12, layers=1),
        joiner=JoinerConfig(dim=16),
    )
    write_model(path, model_config, build_model(model_config), tokenizer, shake)


def moonshine_model_config(**front_end: object) -> ModelConfig:
    """A tiny model on a front end of the size of the published one, with chunks of 320 ms unless said otherwise."""
    front_end = {"layers": (1, 2), "chunk": 320, "left_chunks": 2} | front_end
    return ModelConfig(
        vocab_size=30,
        front_end=FrontEndConfig("moonshine-tiny", **front_end),
        encoder=EncoderConfig(dim=16, attention_dim=16, heads=2, feedforward_dim=24, layers=2, kernel=5),
        streaming=StreamingConfig(chunk=8, left_context=16),
        predictor=PredictorConfig(embedding_dim=8, dim=12, layers=1),
        joiner=JoinerConfig(dim=16),
    )


def moonshine_model(config: ModelConfig) -> Transducer:
    """A model whose front end has random parameters and a standardisation."""
    torch.manual_seed(6)
    model = build_model(config)
    model.front_end.standardisation.fit(model.front_end.sums(samples) for samples in audio(16000, 24000, seed=1))
    return model


def write_moonshine_checkpoint(path: Path, **front_end: object) -> None:
    """Write the checkpoint of a tiny model on a pretrained front end; its parameters are random."""
    config = moonshine_model_config(**front_end)
    write_model(path, config, moonshine_model(config), small_tokenizer())


def write_model(
    path: Path, model_config: ModelConfig, model: Transducer, tokenizer: Tokenizer, shake: float = 0.4
) -> None:
    """Write the checkpoint of a model that was shaken until it says something."""
    # Far from initial values, at which frames hardly differ and the same token comes out at each.
    for part in (model.encoder, model.predictor, model.joiner):
        shaken(part, shake)
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


def batch_of(features: list[torch.Tensor]) -> Batch:
    """A batch of utterances' features [T', 80]."""
    count = len(features)
    return Batch(
        features=torch.nn.utils.rnn.pad_sequence(features, batch_first=True),
        feature_lengths=torch.tensor([len(one) for one in features]),
        tokens=torch.zeros(count, 0, dtype=torch.long),
        token_lengths=torch.zeros(count, dtype=torch.long),
        texts=[""] * count,
        ids=[f"utterance-{n}" for n in range(count)],
        groups=[""] * count,
        units=[""] * count,
        durations=torch.tensor([len(one) / 100 for one in features]),
        custom=[{}] * count,
    )
