"""Invariant: each graph gives what its module gives, for any batch, chunk and left context, step after step."""

import numpy as np
import onnxruntime
import pytest
import torch
from small_models import shaken, small_model_config

from transducer_gn.config import ModelConfig, PredictorConfig
from transducer_gn.export.encoder_graph import write_encoder
from transducer_gn.export.graph import GraphWriter
from transducer_gn.export.token_graphs import write_joiner, write_predictor
from transducer_gn.lattice.interpolation import Interpolation
from transducer_gn.model.chunk import Chunk
from transducer_gn.model.transducer import Transducer, build_model

# Single precision, in another order.
TOLERANCE = 2e-5


def model_of(**changes: object) -> Transducer:
    torch.manual_seed(3)
    config = ModelConfig(**(vars(small_model_config()) | changes))
    return shaken(build_model(config), 0.1).eval().requires_grad_(False)


def run(graph: GraphWriter, outputs: list[str], **inputs: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(graph.model({}).SerializeToString())
    return session.run(outputs, inputs)


@pytest.mark.parametrize(("size", "left"), [(4, 8), (1, 3), (6, 0), (5, 5)])
@pytest.mark.parametrize("batch", [1, 3])
def test_steps_of_the_encoder_give_the_frames_of_whole_utterances(size: int, left: int, batch: int) -> None:
    model = model_of()
    config, framing = model.encoder.config, model.encoder.framing
    lengths = torch.tensor([61, 40, 11])[:batch]
    features = torch.randn(batch, 61, framing.feature_dim, generator=torch.Generator().manual_seed(size))
    encoded, counts = model.encoder(features, lengths, Chunk(size, left))
    wanted = model.joiner.project_encoder(encoded)
    padded = np.zeros((batch, 61 + 2 * framing.features_seen(size), framing.feature_dim), dtype=np.float32)
    for row, length in enumerate(lengths.tolist()):
        padded[row, 1 : 1 + length] = features[row, :length].numpy()
    state = {
        "past": np.zeros(batch, dtype=np.int64),
        "memory": np.zeros((batch, config.layers, left, 2 * config.attention_dim), dtype=np.float32),
        "history": np.zeros((batch, config.layers, config.kernel - 1, config.dim), dtype=np.float32),
    }
    graph = write_encoder(model, size, left)
    session = onnxruntime.InferenceSession(graph.model({}).SerializeToString())
    for number, start in enumerate(range(0, int(counts.max()), size)):
        begin = number * framing.features_used(size)
        frames = np.clip(counts.numpy() - start, 0, size)
        inputs = {"features": padded[:, begin : begin + framing.features_seen(size)], "frames": frames, **state}
        found, *after = session.run(["projected_frames", *(f"new_{name}" for name in state)], inputs)
        state = dict(zip(state, after, strict=True))
        for row, count in enumerate(frames):
            np.testing.assert_allclose(
                found[row, :count], wanted[row, start : start + count].numpy(), rtol=TOLERANCE, atol=TOLERANCE
            )
    assert counts.max() > 2 * size


@pytest.mark.parametrize(
    "predictor",
    [
        PredictorConfig(embedding_dim=12, dim=10, layers=2, forget_bias=1.5),
        PredictorConfig(kind="finite-state", dim=10, context=1),
        PredictorConfig(kind="finite-state", dim=10, context=3),
    ],
    ids=["lstm", "one token", "three tokens"],
)
@pytest.mark.parametrize("batch", [1, 4])
def test_steps_of_the_predictor(predictor: PredictorConfig, batch: int) -> None:
    model = model_of(predictor=predictor)
    names = ["hidden", "cell"] if predictor.kind == "lstm" else ["context"]
    graph = write_predictor(model)
    state = model.predictor.initial_state(batch)
    arrays = [part.numpy() for part in state]
    for step in range(4):
        tokens = (torch.arange(batch) + 3 * step) % model.vocab_size
        output, state = model.predictor.step(tokens, state)
        inputs = dict(zip(names, arrays, strict=True))
        found, *arrays = run(graph, ["projected_prefix", *(f"new_{n}" for n in names)], tokens=tokens.numpy(), **inputs)
        np.testing.assert_allclose(found, model.joiner.project_predictor(output).numpy(), atol=TOLERANCE)
        for part, array in zip(state, arrays, strict=True):
            np.testing.assert_allclose(array, part.numpy(), atol=TOLERANCE)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("scale", [1.0, 60.0], ids=["small weights", "weights whose exponentials overflow"])
def test_the_joiner_has_the_interpolation_folded_in(alpha: float, scale: float) -> None:
    model = model_of()
    model.joiner.output.weight.log_scale += np.log(scale)
    generator = torch.Generator().manual_seed(1)
    frames, prefixes = (torch.randn(5, 14, generator=generator) for _ in range(2))
    logits = model.joiner(frames, prefixes)
    wanted = logits - alpha * logits.logsumexp(-1, keepdim=True)
    graph = write_joiner(model.joiner, Interpolation(alpha))
    weights, log_sums = run(
        graph, ["weights", "log_sums"], projected_frame=frames.numpy(), projected_prefix=prefixes.numpy()
    )
    assert scale == 1 or logits.abs().max() > 100
    np.testing.assert_allclose(weights, wanted.numpy(), rtol=TOLERANCE, atol=scale * TOLERANCE)
    np.testing.assert_allclose(log_sums, logits.logsumexp(-1).numpy(), rtol=TOLERANCE, atol=scale * TOLERANCE)
