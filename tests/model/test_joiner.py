"""Invariant: the joiner is the definition W tanh(A e + B p) + b, its public parts put together give the same, and
half-precision inputs or autocast never lower the precision of what comes out.
"""

import numpy as np
import pytest
import torch
from model_oracles import array

from transducer_gn.model.joiner import Joiner


@pytest.fixture
def joiner() -> Joiner:
    """A small joiner with parameters away from their special initial values."""
    torch.manual_seed(1)
    model = Joiner(encoder_dim=6, predictor_dim=5, dim=4, vocab_size=9)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def test_logits_follow_the_definition_at_every_lattice_point(joiner: Joiner) -> None:
    joiner = joiner.double()
    encoder, predictor = torch.randn(2, 3, 6).double(), torch.randn(2, 4, 5).double()
    logits = joiner(joiner.project_encoder(encoder).unsqueeze(2), joiner.project_predictor(predictor).unsqueeze(1))
    for b, t, u in np.ndindex(2, 3, 4):
        hidden = np.tanh(
            array(joiner.encoder_projection.weight()) @ array(encoder[b, t])
            + array(joiner.encoder_projection.bias())
            + array(joiner.predictor_projection.weight()) @ array(predictor[b, u])
        )
        oracle = array(joiner.output.weight()) @ hidden + array(joiner.output.bias())
        np.testing.assert_allclose(array(logits[b, t, u]), oracle, atol=1e-12)


def test_a_blank_prior_is_what_weights_start_from() -> None:
    torch.manual_seed(0)
    model = Joiner(encoder_dim=6, predictor_dim=5, dim=4, vocab_size=9, blank_prior=0.8)
    with torch.no_grad():
        model.output.weight.value.zero_()
        model.output.bias.value.zero_()
    logits = model(model.project_encoder(torch.randn(3, 6)), model.project_predictor(torch.randn(3, 5)))
    expected = torch.tensor([0.8] + [0.2 / 8] * 8).log().expand(3, 9)
    torch.testing.assert_close(logits, expected)
    assert set(model.state_dict()) == set(Joiner(6, 5, 4, 9).state_dict())


def test_output_layer_can_be_evaluated_row_by_row(joiner: Joiner) -> None:
    encoder, predictor = joiner.project_encoder(torch.randn(3, 6)), joiner.project_predictor(torch.randn(3, 5))
    rows = torch.tensor([0, 4])
    some = (encoder + predictor).tanh() @ joiner.output_weight[rows].t() + joiner.output_bias[rows]
    torch.testing.assert_close(some, joiner(encoder, predictor)[:, rows])


def test_gradients_flow_through_the_public_parts(joiner: Joiner) -> None:
    hidden = (joiner.project_encoder(torch.randn(3, 6)) + joiner.project_predictor(torch.randn(3, 5))).tanh()
    (hidden @ joiner.output_weight.t() + joiner.output_bias).square().sum().backward()
    for name, parameter in joiner.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_half_precision_inputs_come_out_in_float32(joiner: Joiner, half: torch.dtype) -> None:
    encoder, predictor = torch.randn(3, 6).to(half), torch.randn(3, 5).to(half)
    plain = joiner(joiner.project_encoder(encoder.float()), joiner.project_predictor(predictor.float()))
    with torch.autocast("cpu", dtype=half):
        cast = joiner(joiner.project_encoder(encoder), joiner.project_predictor(predictor))
    assert cast.dtype == torch.float32
    assert torch.equal(cast, plain)
