"""Invariant: a model built from settings has the sizes they say, trains end to end into every parameter, hands float32
to the lattice, and the paper's configurations have the paper's numbers of parameters.
"""

from pathlib import Path

import pytest
import torch
from small_models import small_model_config

from transducer_gn.config import config_parser, read_config
from transducer_gn.model.chunk import Chunk, evaluation_chunk
from transducer_gn.model.count import count, table
from transducer_gn.model.predictor import FiniteStatePredictor, LstmPredictor
from transducer_gn.model.transducer import Transducer, build_model

CONF = Path(__file__).parents[2] / "conf"


def model_of(*arguments: str) -> Transducer:
    """The model of some flags, without memory for its parameters."""
    config, _ = read_config(config_parser(""), list(arguments))
    with torch.device("meta"):
        return build_model(config.model)


@pytest.mark.parametrize(
    ("overrides", "millions"),
    [
        ([], 99.7),
        (["--model.encoder.attention_dim", "512"], 83.9),
        (["--model.encoder.dim", "1024"], 211.5),
        (["--config", str(CONF / "lookahead.yaml")], 99.7),
    ],
)
def test_the_readings_of_the_paper_have_their_parameters(overrides: list[str], millions: float) -> None:
    model = model_of("--config", str(CONF / "librispeech.yaml"), *overrides)
    assert isinstance(model.predictor, LstmPredictor)
    assert model.predictor.output_dim == 512
    assert round(count(model) / 1e6, 1) == millions


def test_finite_state_and_mini_configurations() -> None:
    finite = model_of("--config", str(CONF / "finite-state-32.yaml"))
    assert isinstance(finite.predictor, FiniteStatePredictor)
    assert finite.vocab_size == 32 and finite.predictor.context == 2
    assert 3e5 < count(model_of("--config", str(CONF / "mini.yaml"))) < 4e6


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.name)
def test_every_configuration_can_be_built_and_counted(path: Path) -> None:
    model = model_of("--config", str(path))
    assert f"{sum(p.numel() for p in model.parameters()):,d}" in table(model).splitlines()[-1]


def test_count_adds_up() -> None:
    model = build_model(small_model_config())
    *parts, total = (int(line.split()[1].replace(",", "")) for line in table(model).splitlines())
    assert sum(parts) == total == sum(parameter.numel() for parameter in model.parameters())


def test_the_paper_streams_with_640_ms() -> None:
    config, _ = read_config(config_parser(""), ["--config", str(CONF / "librispeech.yaml")])
    assert evaluation_chunk(config.model.streaming) == Chunk(16, 64)


def logits_of(model: Transducer, seed: int = 0) -> torch.Tensor:
    """Logits at all points of two utterances, padding included."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(2, 70, 80, generator=generator)
    tokens = torch.randint(1, 11, (2, 5), generator=generator)
    frames, _ = model.encoder(features, torch.tensor([70, 55]), Chunk(4, 8))
    encoder = model.joiner.project_encoder(frames).unsqueeze(2)
    predictor = model.joiner.project_predictor(model.predictor.unroll(tokens)).unsqueeze(1)
    return model.joiner(encoder, predictor)


def test_gradients_reach_every_parameter_of_a_new_model() -> None:
    torch.manual_seed(0)
    model = build_model(small_model_config())
    logits = logits_of(model)
    assert logits.shape == (2, 16, 6, model.vocab_size)
    (logits * torch.randn_like(logits)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


def test_seeds_repeat_the_model_and_its_output() -> None:
    results = []
    for seed in (7, 7, 8):
        torch.manual_seed(seed)
        results.append(logits_of(build_model(small_model_config())))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_autocast_hands_float32_to_the_lattice(half: torch.dtype) -> None:
    torch.manual_seed(0)
    model = build_model(small_model_config()).eval()
    full = logits_of(model)
    # Without oneDNN, whose half-precision kernels do not run on every processor that it chooses them for.
    with torch.backends.mkldnn.flags(enabled=False), torch.autocast("cpu", dtype=half):
        cast = logits_of(model)
    assert cast.dtype == torch.float32
    torch.testing.assert_close(cast, full, rtol=0, atol=0.15)
    assert not torch.equal(cast, full)


def test_a_saved_model_loads_into_a_new_one(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = build_model(small_model_config()).eval()
    torch.save(model.state_dict(), tmp_path / "model.pt")
    other = build_model(small_model_config()).eval()
    other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    assert torch.equal(logits_of(model), logits_of(other))
