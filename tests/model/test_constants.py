"""A constant copy gives what its module gave when it was made, to rounding."""

import gc
import weakref

import pytest
import torch
from small_models import shaken

from transducer_gn.config import OptimiserConfig, PredictorConfig
from transducer_gn.model.constants import constant, folded
from transducer_gn.model.joiner import Joiner
from transducer_gn.model.predictor import LstmPredictor, build_predictor
from transducer_gn.training.optimiser import build_optimiser


@pytest.mark.parametrize("kind", ["lstm", "finite-state"])
@pytest.mark.parametrize("rows", [1, 3, 40])
@torch.no_grad()
def test_steps_are_those_of_the_predictor(kind, rows):
    torch.manual_seed(0)
    config = PredictorConfig(kind=kind, embedding_dim=6, dim=8, layers=2, context=2, forget_bias=1.0)
    predictor = shaken(build_predictor(config, 9), 0.3)
    tokens = [torch.randint(9, (rows,)) for _ in range(3)]
    copies = [predictor, constant(predictor, "quick"), constant(predictor, "fused")]
    states = [copy.initial_state(rows) for copy in copies]
    for step in tokens:
        outputs = []
        for number, copy in enumerate(copies):
            output, states[number] = copy.step(step, states[number])
            outputs.append(output)
        for output in outputs[1:]:
            torch.testing.assert_close(output, outputs[0], rtol=1e-5, atol=1e-5)
        for before, *others in zip(*states, strict=True):
            for other in others:
                torch.testing.assert_close(other, before, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["quick", "fused"])
@torch.no_grad()
def test_logits_are_those_of_the_joiner_when_the_copy_was_made(kind):
    torch.manual_seed(0)
    joiner = shaken(Joiner(5, 6, 7, 11, blank_prior=0.8), 0.3)
    frames, prefixes = torch.randn(4, 5), torch.randn(4, 6)
    wanted = joiner(joiner.project_encoder(frames), joiner.project_predictor(prefixes))
    copy = constant(joiner, kind)
    for parameter in joiner.parameters():
        if parameter.dim() == 0:
            parameter += 1  # scales, which the copy has multiplied out
    found = copy(copy.project_encoder(frames), copy.project_predictor(prefixes))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_what_is_no_module_is_given_back():
    thing = object()
    assert constant(thing, "quick") is thing


@pytest.mark.parametrize("optimiser", ["eve", "adamw"])
def test_a_search_of_training_sees_the_last_update(optimiser):
    torch.manual_seed(0)
    predictor = build_predictor(PredictorConfig(kind="lstm", embedding_dim=6, dim=8, layers=1), 9)
    tokens, state = torch.tensor([1, 5]), predictor.initial_state(2)
    before, _ = constant(predictor, "quick").step(tokens, state)
    predictor.step(tokens, state)[0].square().sum().backward()
    build_optimiser(OptimiserConfig(kind=optimiser), predictor.parameters()).step()
    found, _ = constant(predictor, "quick").step(tokens, state)
    assert not torch.equal(found, before)
    torch.testing.assert_close(found, predictor.step(tokens, state)[0].detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("change", ["in place", "another", "assigned"])
@torch.no_grad()
def test_a_kept_copy_goes_when_its_module_changes(change):
    torch.manual_seed(0)
    config = PredictorConfig(kind="lstm", embedding_dim=6, dim=8, layers=1)
    predictor = build_predictor(config, 9)
    kept = constant(predictor, "quick")
    assert constant(predictor, "quick") is kept
    if change == "in place":
        predictor.lstm.layers[0].input_weight.log_scale += 0.5
    elif change == "another":
        predictor.lstm.layers[0].state_weight.value = torch.nn.Parameter(torch.randn(32, 8))
    else:
        predictor.load_state_dict(shaken(build_predictor(config, 9), 0.3).state_dict(), assign=True)
    tokens = torch.tensor([1, 5, 5])
    wanted, _ = predictor.step(tokens, predictor.initial_state(3))
    found, _ = constant(predictor, "quick").step(tokens, kept.initial_state(3))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_a_kept_copy_goes_with_its_module():
    predictor = build_predictor(PredictorConfig(kind="lstm", embedding_dim=6, dim=8, layers=1), 9)
    gone = weakref.ref(predictor)
    constant(predictor, "quick")
    del predictor
    gc.collect()
    assert gone() is None


def small_pair(dtype=torch.float32):
    """An LSTM predictor and a joiner."""
    torch.manual_seed(0)
    config = PredictorConfig(kind="lstm", embedding_dim=6, dim=8, layers=2)
    return tuple(shaken(part, 0.3).to(dtype) for part in (build_predictor(config, 9), Joiner(5, 8, 7, 9)))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@torch.no_grad()
def test_a_folded_reader_says_what_predictor_and_projection_say(dtype, tolerance):
    predictor, joiner = small_pair(dtype)
    reader = folded(predictor, joiner)
    states = predictor.initial_state(3), reader.initial_state(3)
    for tokens in torch.tensor([[0, 0, 0], [1, 8, 3], [8, 8, 1]]):
        output, before = predictor.step(tokens, states[0])
        found, after = reader.read(tokens, states[1])
        states = before, after
        torch.testing.assert_close(found, joiner.project_predictor(output), rtol=tolerance, atol=tolerance)
        for own, other in zip(after, before, strict=True):
            torch.testing.assert_close(own, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("changed", ["predictor", "joiner", "another predictor"])
@torch.no_grad()
def test_a_folded_reader_is_kept_until_either_part_changes(changed):
    predictor, joiner = small_pair()
    kept = folded(predictor, joiner)
    assert folded(predictor, joiner) is kept
    if changed == "predictor":
        predictor.output.bias.value += 1
    elif changed == "joiner":
        joiner.predictor_projection.weight.log_scale += 0.5
    else:
        predictor = shaken(build_predictor(PredictorConfig(kind="lstm", embedding_dim=6, dim=8, layers=2), 9), 0.3)
    tokens = torch.tensor([1, 5])
    wanted = joiner.project_predictor(predictor.step(tokens, predictor.initial_state(2))[0])
    found, _ = folded(predictor, joiner).read(tokens, kept.initial_state(2))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_only_what_is_known_to_end_in_a_linear_layer_is_folded():
    class Other(LstmPredictor):
        """May say anything."""

    _, joiner = small_pair()
    assert folded(Other(9, 6, 8, 1), joiner) is None
    assert folded(build_predictor(PredictorConfig(kind="finite-state", dim=8, context=2), 9), joiner) is None
    assert folded(object(), joiner) is None and folded(Other(9, 6, 8, 1), object()) is None
