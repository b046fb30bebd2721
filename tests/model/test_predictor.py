"""Invariant: step, unroll and unroll_tree of every predictor give the output that its definition gives for a prefix,
whatever else is in the batch, and the same gradients; each distinct prefix is computed once.
"""

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from model_oracles import array, lstm, prefix_forest
from torch import Tensor

from transducer_gn.common import quick
from transducer_gn.config import PredictorConfig
from transducer_gn.model.predictor import FiniteStatePredictor, LstmPredictor, Predictor, build_predictor

VOCAB = 7
CONFIGS = {
    "lstm-1": PredictorConfig(kind="lstm", embedding_dim=6, dim=5, layers=1),
    "lstm-2": PredictorConfig(kind="lstm", embedding_dim=6, dim=5, layers=2),
    "lstm-biased": PredictorConfig(kind="lstm", embedding_dim=6, dim=5, layers=2, forget_bias=3.0),
    "finite-1": PredictorConfig(kind="finite-state", dim=5, context=1),
    "finite-2": PredictorConfig(kind="finite-state", dim=5, context=2),
    "finite-3": PredictorConfig(kind="finite-state", dim=5, context=3),
}


@pytest.fixture(params=CONFIGS)
def predictor(request: pytest.FixtureRequest) -> LstmPredictor | FiniteStatePredictor:
    """One of each kind, with parameters away from their special initial values."""
    torch.manual_seed(3)
    model = build_predictor(CONFIGS[request.param], VOCAB).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def random_batch(seed: int) -> list[list[list[int]]]:
    """Sequences of three utterances, some equal to others' prefixes and one empty."""
    random = np.random.default_rng(seed)
    batch = []
    for _ in range(3):
        first = random.integers(1, VOCAB, size=random.integers(3, 8)).tolist()
        fork = first[:2] + random.integers(1, VOCAB, size=random.integers(0, 6)).tolist()
        other = random.integers(1, VOCAB, size=random.integers(1, 5)).tolist()
        batch.append([first, fork, first[:3], other, []])
    return batch


def expected(predictor: LstmPredictor | FiniteStatePredictor, prefix: tuple[int, ...]) -> np.ndarray:
    """The output after `prefix`, from the definition."""
    table = array(predictor.embedding.weight())
    if isinstance(predictor, LstmPredictor):
        layers = [(layer.input_weight(), layer.state_weight(), layer.bias()) for layer in predictor.lstm.layers]
        hidden = lstm([tuple(map(array, layer)) for layer in layers], table[[0, *prefix]])[-1]
        return array(predictor.output.weight()) @ hidden + array(predictor.output.bias())
    context = ([0] * predictor.context + list(prefix))[-predictor.context :]
    mixing = array(predictor.mixing())
    return np.maximum(sum(weights * table[token] for weights, token in zip(mixing, context, strict=True)), 0)


def by_steps(predictor: Predictor, prefix: tuple[int, ...], batch: int = 1) -> Tensor:
    """The output [D] after `prefix`, one step at a time, in the last of `batch` rows that read other tokens."""
    state = predictor.initial_state(batch)
    for position, token in enumerate((0, *prefix)):
        tokens = torch.full((batch,), (position * 5 + 3) % VOCAB)
        tokens[-1] = token
        output, state = predictor.step(tokens, state)
    return output[-1]


def test_step_follows_the_definition(predictor: Predictor) -> None:
    for prefix in [(), (4,), (1, 6, 2, 2, 5)]:
        for batch in (1, 3):
            output = array(by_steps(predictor, prefix, batch))
            np.testing.assert_allclose(output, expected(predictor, prefix), atol=1e-12)


def test_rows_of_a_state_can_be_picked(predictor: Predictor) -> None:
    """Searches permute, repeat and drop hypotheses by indexing the first dimension of every tensor of a state."""
    _, state = predictor.step(torch.zeros(3, dtype=torch.long), predictor.initial_state(3))
    _, state = predictor.step(torch.tensor([1, 2, 3]), state)
    rows = torch.tensor([2, 0, 2, 1])
    output, _ = predictor.step(torch.tensor([4, 5, 6, 1]), tuple(part[rows] for part in state))
    for row, prefix in enumerate([(3, 4), (1, 5), (3, 6), (2, 1)]):
        np.testing.assert_allclose(array(output[row]), expected(predictor, prefix), atol=1e-12)


def test_unroll_gives_all_prefixes_whatever_the_padding(predictor: Predictor) -> None:
    sequences = [sequences[0] for sequences in random_batch(5)] + [[]]
    longest = max(map(len, sequences)) + 2
    tokens = torch.randint(VOCAB, (len(sequences), longest), generator=torch.Generator().manual_seed(1))
    for row, sequence in enumerate(sequences):
        tokens[row, : len(sequence)] = torch.tensor(sequence, dtype=torch.long)
    outputs = predictor.unroll(tokens)
    assert outputs.shape == (len(sequences), longest + 1, predictor.output_dim)
    for row, sequence in enumerate(sequences):
        for length in range(len(sequence) + 1):
            prefix = tuple(sequence[:length])
            np.testing.assert_allclose(array(outputs[row, length]), expected(predictor, prefix), atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_unroll_tree_gives_every_node(predictor: Predictor, seed: int) -> None:
    parents, tokens, depths, prefixes = prefix_forest(random_batch(seed))
    outputs = predictor.unroll_tree(*map(torch.tensor, (parents, tokens, depths)))
    assert len(outputs) == len(prefixes)
    for output, prefix in zip(outputs, prefixes, strict=True):
        np.testing.assert_allclose(array(output), expected(predictor, prefix), atol=1e-12)


def test_unroll_tree_of_roots_alone(predictor: Predictor) -> None:
    outputs = predictor.unroll_tree(torch.tensor([-1, -1]), torch.tensor([0, 0]), torch.tensor([0, 0]))
    for output in outputs:
        np.testing.assert_allclose(array(output), expected(predictor, ()), atol=1e-12)


def gradients(predictor: torch.nn.Module, compute: Callable[[], Tensor]) -> list[Tensor]:
    """Gradients of all parameters of a scalar."""
    return list(torch.autograd.grad(compute(), list(predictor.parameters())))


def test_gradients_agree_and_reach_every_parameter(predictor: Predictor) -> None:
    parents, tokens, depths, prefixes = prefix_forest(random_batch(8))
    weights = torch.randn(len(prefixes), predictor.output_dim, generator=torch.Generator().manual_seed(2)).double()

    def tree() -> Tensor:
        return (predictor.unroll_tree(*map(torch.tensor, (parents, tokens, depths))) * weights).sum()

    def steps() -> Tensor:
        pairs = zip(prefixes, weights, strict=True)
        return sum((by_steps(predictor, prefix) * weight).sum() for prefix, weight in pairs)

    def unroll() -> Tensor:
        total = torch.zeros(())
        for prefix, weight in zip(prefixes, weights, strict=True):
            total = total + (predictor.unroll(torch.tensor([prefix], dtype=torch.long))[0, -1] * weight).sum()
        return total

    by_tree, by_step, by_unroll = (gradients(predictor, way) for way in (tree, steps, unroll))
    for tree_gradient, step_gradient, unroll_gradient in zip(by_tree, by_step, by_unroll, strict=True):
        assert tree_gradient.abs().max() > 0
        torch.testing.assert_close(tree_gradient, step_gradient, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(unroll_gradient, step_gradient, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("quickly", [True, False])
@pytest.mark.parametrize("rows", [(256, 64), (4, 2)])
def test_trees_in_single_precision(quickly: bool, rows: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Products are others there: by packed weights, and by spans of rows."""
    monkeypatch.setattr(quick, "DEVICES", {"cpu"} if quickly else set())
    monkeypatch.setattr(quick, "ROWS", rows)
    torch.manual_seed(0)
    model = build_predictor(CONFIGS["lstm-2"], VOCAB)
    parents, tokens, depths, prefixes = prefix_forest(random_batch(8))
    forest = tuple(map(torch.tensor, (parents, tokens, depths)))
    weights = torch.randn(len(prefixes), model.output_dim, generator=torch.Generator().manual_seed(2)).double()

    def found(dtype: torch.dtype) -> tuple[Tensor, list[Tensor]]:
        own = copy.deepcopy(model).to(dtype)
        outputs = own.unroll_tree(*forest)
        return outputs.double(), [g.double() for g in gradients(own, lambda: (outputs * weights.to(dtype)).sum())]

    torch.testing.assert_close(found(torch.float32), found(torch.float64), rtol=1e-4, atol=1e-4)


def test_tree_recursion_computes_each_distinct_prefix_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten equal sequences cost the rows of one."""
    torch.manual_seed(0)
    model = build_predictor(CONFIGS["lstm-2"], VOCAB)
    rows = []

    def counted(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def counting(x: Tensor, *rest: Tensor, **named: Tensor) -> Tensor:
            rows.append(len(x))
            return function(x, *rest, **named)

        return counting

    monkeypatch.setattr(torch.nn.functional, "linear", counted(torch.nn.functional.linear))
    monkeypatch.setattr(quick, "affine", counted(quick.affine))
    parents, tokens, depths, _ = prefix_forest([[[1, 2, 3]] * 10])
    model.unroll_tree(*map(torch.tensor, (parents, tokens, depths)))
    assert rows == [4] * 3  # two layers and the output


def test_forget_bias_acts_on_the_forget_gates_alone() -> None:
    torch.manual_seed(0)
    plain = build_predictor(CONFIGS["lstm-2"], VOCAB)
    biased = build_predictor(CONFIGS["lstm-biased"], VOCAB)
    biased.load_state_dict(plain.state_dict())
    for layer, other in zip(plain.lstm.layers, biased.lstm.layers, strict=True):
        torch.testing.assert_close(other.bias() - layer.bias(), torch.tensor([0.0] * 5 + [3.0] * 5 + [0.0] * 10))


@pytest.mark.parametrize("context", [1, 2, 3])
def test_all_states_are_numbered_by_their_digits(context: int) -> None:
    torch.manual_seed(0)
    model = FiniteStatePredictor(VOCAB, 5, context).double()
    outputs = model.all_states()
    assert len(outputs) == VOCAB**context
    for state in range(0, VOCAB**context, 5):
        digits = [state // VOCAB ** (context - 1 - place) % VOCAB for place in range(context)]
        np.testing.assert_allclose(array(outputs[state]), expected(model, tuple(digits)), atol=1e-12)


@pytest.mark.parametrize("kind", CONFIGS)
def test_autocast_leaves_predictors_in_float32(kind: str) -> None:
    torch.manual_seed(0)
    model = build_predictor(CONFIGS[kind], VOCAB)
    tokens = torch.tensor([[1, 2, 3]])
    plain = model.unroll(tokens)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = model.unroll(tokens)
        stepped, _ = model.step(torch.tensor([0]), model.initial_state(1))
        tree = model.unroll_tree(torch.tensor([-1]), torch.tensor([0]), torch.tensor([0]))
    assert torch.equal(cast, plain)
    assert stepped.dtype == tree.dtype == torch.float32
    torch.testing.assert_close(stepped, plain[:, 0])
    torch.testing.assert_close(tree, plain[:, 0])
