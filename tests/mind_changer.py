"""A tiny system that changes its mind, built by hand, and audio that makes it do so.

Four sounds: silence and three tones. The encoder's weights are random; a linear map, fitted to its frames, says which
sound a frame is. The joiner is a table made of rules: at the first tone FAN is a little likelier than VAN, at the
second comes WENT, and at the third DRIVER, whose weight is much larger after VAN. Under local normalisation that
counts for nothing, since nothing but DRIVER can come there; under global normalisation FAN is withdrawn.
"""

import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from transducer_gn.config import (
    Config,
    EncoderConfig,
    JoinerConfig,
    ModelConfig,
    NormalisationConfig,
    PredictorConfig,
    StreamingConfig,
)
from transducer_gn.data.features import fbank
from transducer_gn.data.tokenizer import Tokenizer, train_tokenizer
from transducer_gn.model.chunk import Chunk
from transducer_gn.model.transducer import Transducer, build_model
from transducer_gn.recognition.averaging import RunningAverage
from transducer_gn.recognition.checkpoint import Checkpoint, Progress, TrainingState

RATE = 16000
TONES = (0, 500, 1300, 2900)
FIRST, SECOND, THIRD = 1, 2, 3
CHUNK = Chunk(4, 8)
# How sharply a unit of the joiner tells whether all of its conditions hold; what labels weigh without a rule for them.
STEEPNESS, HARDLY, NEVER = 16.0, -30.0, -60.0
WORDS = ("FAN", "VAN", "WENT", "DRIVER")
# What is understood of `said()`: at first, and in the end by a global and by a local system.
AT_FIRST, REVISED, STUBBORN = "FAN WENT", "VAN WENT DRIVER", "FAN WENT DRIVER"


def sound(kind: int, seconds: float, loudness: float = 0.3) -> np.ndarray:
    """Samples [n] of silence or of a tone."""
    time = np.arange(round(seconds * RATE)) / RATE
    return loudness * np.sin(2 * math.pi * TONES[kind] * time)


def said(times: int = 1) -> np.ndarray:
    """16-bit samples of the sentence: a tone for each word, with pauses."""
    parts = [sound(0, 0.4)]
    for _ in range(times):
        parts += [each for kind in (FIRST, SECOND, THIRD) for each in (sound(kind, 0.4), sound(0, 0.56))]
    return np.rint(np.concatenate(parts) * 32767).astype("<i2")


def write_mind_changer(path: Path, alpha: float = 0.0) -> None:
    """Write the checkpoint of a system that changes its mind, or of one that does not: the same but for alpha."""
    torch.manual_seed(3)
    # Every word often enough to be one piece.
    tokenizer = train_tokenizer([" ".join([word] * 9) for word in WORDS] * 20, 18)
    vocabulary = tokenizer.vocab_size
    config = ModelConfig(
        vocab_size=vocabulary,
        encoder=EncoderConfig(dim=96, attention_dim=16, heads=2, feedforward_dim=24, layers=1, kernel=3),
        streaming=StreamingConfig(chunk=CHUNK.size, left_context=CHUNK.left),
        predictor=PredictorConfig(kind="finite-state", dim=2 * vocabulary, context=2),
        joiner=JoinerConfig(dim=16),
    )
    model = build_model(config).eval()
    with torch.no_grad():
        remember_two_tokens(model, vocabulary)
        fill_table(model, tokenizer)
    Checkpoint(
        config=Config(model=config, normalisation=NormalisationConfig(alpha, alpha_delay=0, alpha_per_epoch=1)),
        progress=Progress(epoch=1),
        model=model.state_dict(),
        average=RunningAverage(model).state_dict(),
        tokenizer=tokenizer.model,
        training=TrainingState({}, {}, {}, {}, {}, [], []),
    ).save(path)


def remember_two_tokens(model: Transducer, vocabulary: int) -> None:
    """Make the predictor's output say which token came last but one, and which came last."""
    one_hot = torch.eye(vocabulary)
    set_to(model.predictor.embedding.weight, torch.cat([one_hot, one_hot], dim=1))
    older, newest = torch.zeros(2, 2 * vocabulary)
    older[:vocabulary] = 1
    newest[vocabulary:] = 1
    set_to(model.predictor.mixing, torch.stack([older, newest]))


def set_to(parameter: torch.nn.Module, value: Tensor) -> None:
    """Make a scaled tensor act as `value`."""
    parameter.value.copy_(value)
    parameter.log_scale.zero_()


def fill_table(model: Transducer, tokenizer: Tokenizer) -> None:
    """Make the joiner say what the rules say: for each, if its conditions hold, what is added to weights of labels."""
    fan, van, went, driver = (tokenizer.pieces.index("\u2581" + word) for word in WORDS)
    start, blank = 0, 0
    # The sound, the token before the last (None: any), the last one; and what is added.
    either = {fan: math.log(0.6) - HARDLY, van: math.log(0.4) - HARDLY, blank: HARDLY}
    rules = [
        (FIRST, None, start, either),
        (FIRST, None, driver, either),
        (SECOND, None, fan, {went: -HARDLY, blank: HARDLY}),
        (SECOND, None, van, {went: -HARDLY, blank: HARDLY}),
        (THIRD, van, went, {driver: -HARDLY, blank: HARDLY}),
        (THIRD, fan, went, {driver: -4 - HARDLY, blank: HARDLY}),
    ]
    vocabulary, width = tokenizer.vocab_size, model.joiner.encoder_projection.weight.value.shape[0]
    which, offset = sound_classifier(model)
    sounds, encoder_bias = torch.zeros(width, which.shape[1]), torch.full((width,), -STEEPNESS)
    tokens, output = torch.zeros(width, 2 * vocabulary), torch.zeros(vocabulary, width)
    bias = torch.full((vocabulary,), NEVER)
    bias[[fan, van, went, driver]] = HARDLY
    bias[blank] = 0.0
    for unit, (kind, older, newest, added) in enumerate(rules):
        conditions = 2 if older is None else 3
        sounds[unit] = STEEPNESS * which[kind]
        encoder_bias[unit] = STEEPNESS * (offset[kind] - conditions + 0.5)
        tokens[unit, vocabulary + newest] = STEEPNESS
        if older is not None:
            tokens[unit, older] = STEEPNESS
        for label, weight in added.items():
            # A unit is 1 or -1: half of it, and half of it always.
            output[label, unit] = weight / 2
            bias[label] += weight / 2
    joiner = model.joiner
    set_to(joiner.encoder_projection.weight, sounds)
    set_to(joiner.encoder_projection.bias, encoder_bias)
    set_to(joiner.predictor_projection.weight, tokens)
    set_to(joiner.output.weight, output)
    set_to(joiner.output.bias, bias)


def sound_classifier(model: Transducer) -> tuple[Tensor, Tensor]:
    """Weights [4, D] and offsets [4] that make an encoder frame 1 for the sound that it is and 0 for the others."""
    randomness = np.random.default_rng(1)
    frames, kinds = [], []
    for _ in range(60):
        parts, labels = [], []
        for kind in randomness.permutation([0, 0, 1, 2, 3]):
            count = int(randomness.integers(8, 16))
            start = int(randomness.integers(RATE))
            loudness = randomness.uniform(0.2, 0.4)
            parts.append(sound(kind, 1 + 0.04 * count, loudness)[start : start + count * 640])
            parts[-1] = np.pad(parts[-1], (0, count * 640 - len(parts[-1])))
            # Frames at the borders are of two sounds, and count as none.
            labels += [0, 0, *[kind] * (count - 4), 0, 0]
        noise = 10.0 ** randomness.uniform(-7, -4) * randomness.standard_normal(640 * len(labels))
        features = torch.as_tensor(fbank().extract((np.concatenate(parts) + noise).astype(np.float32)[None], RATE))
        encoded, counts = model.encoder(features[None], torch.tensor([len(features)]), CHUNK)
        frames.append(encoded[0])
        kinds.append(torch.tensor(labels[: int(counts[0])]))
    inputs = torch.cat([torch.cat(frames), torch.ones(len(torch.cat(kinds)), 1)], dim=1).double()
    wanted = torch.nn.functional.one_hot(torch.cat(kinds), len(TONES)).double()
    ridge = 1e-3 * torch.eye(inputs.shape[1], dtype=torch.double)
    found = torch.linalg.solve(inputs.T @ inputs + ridge, inputs.T @ wanted).T.float()
    return found[:, :-1], found[:, -1]
