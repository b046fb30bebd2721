"""Invariant: a sequence's score is the literal sum over its alignments, its gradients are their occupations,
whatever the weights, the lengths, the padding, the dtype and the backend.
"""

import itertools
import json
import math
from pathlib import Path
from types import SimpleNamespace

import oracles
import pytest
import torch

from transducer_gn.lattice import diagonals, recursion
from transducer_gn.lattice.recursion import resolve_backend, sequence_scores

K2_REFERENCE = json.loads((Path(__file__).parents[1] / "fixtures" / "k2_recursion_reference.json").read_text())["cases"]


def importable(name):
    try:
        resolve_backend(name, torch.device("cpu"))
    except ValueError:
        return False
    return True


BACKENDS = [
    pytest.param(name, marks=pytest.mark.skipif(not importable(name), reason=f"{name} does not import here"))
    for name in recursion.BACKENDS
]


def random_lattices(seed, sequences=6, tokens=4, frames=5, scale=3.0, dtype=torch.float64, blocked=0.0):
    """Random unnormalised weights of both signs; a share `blocked` of them is -inf."""
    generator = torch.Generator().manual_seed(seed)
    token_weights = scale * torch.randn(sequences, tokens, frames, generator=generator, dtype=torch.float64)
    blank_weights = scale * torch.randn(sequences, tokens + 1, frames, generator=generator, dtype=torch.float64)
    for weights in (token_weights, blank_weights):
        weights[torch.rand(weights.shape, generator=generator) < blocked] = -math.inf
    token_lengths = torch.randint(0, tokens + 1, (sequences,), generator=generator)
    frame_lengths = torch.randint(0, frames + 1, (sequences,), generator=generator)
    return token_weights.to(dtype), blank_weights.to(dtype), token_lengths, frame_lengths


def scores_and_gradients(token_weights, blank_weights, *lengths, backend="torch"):
    token_weights = token_weights.clone().requires_grad_()
    blank_weights = blank_weights.clone().requires_grad_()
    scores = sequence_scores(token_weights, blank_weights, *lengths, backend=backend)
    scores[scores > -math.inf].sum().backward()
    return scores.detach(), token_weights.grad, blank_weights.grad


def oracle_scores_and_gradients(token_weights, blank_weights, token_lengths, frame_lengths):
    scores = []
    token_grads, blank_grads = torch.zeros_like(token_weights), torch.zeros_like(blank_weights)
    for h, (tokens, frames) in enumerate(zip(token_lengths.tolist(), frame_lengths.tolist(), strict=True)):
        arguments = (token_weights[h].tolist(), blank_weights[h].tolist(), tokens, frames)
        scores.append(oracles.sequence_score(*arguments))
        token_arcs, blank_arcs = oracles.occupations(*arguments)
        token_grads[h, :tokens, :frames] = torch.tensor(token_arcs, dtype=torch.float64).reshape(tokens, frames)
        blank_grads[h, : tokens + 1, :frames] = torch.tensor(blank_arcs, dtype=torch.float64).reshape(
            tokens + 1, frames
        )
    return torch.tensor(scores, dtype=token_weights.dtype), token_grads, blank_grads


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("blocked", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(25))
def test_equals_enumeration_of_alignments(seed, blocked, backend):
    case = random_lattices(seed, blocked=blocked)
    torch.testing.assert_close(
        scores_and_gradients(*case, backend=backend), oracle_scores_and_gradients(*case), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", range(5))
def test_float32_is_within_float_tolerance(seed, backend):
    case = random_lattices(seed, sequences=4, tokens=6, frames=8, dtype=torch.float32)
    scores, token_grads, blank_grads = scores_and_gradients(*case, backend=backend)
    assert scores.dtype == token_grads.dtype == torch.float32
    exact = oracle_scores_and_gradients(case[0].double(), case[1].double(), *case[2:])
    torch.testing.assert_close(scores.double(), exact[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close((token_grads.double(), blank_grads.double()), exact[1:], rtol=1e-4, atol=1e-5)


def test_long_float32_scores_keep_small_differences():
    # Raw weights of +-20 add up to thousands, where float32 resolves no better than 2e-4; competitors differ by less.
    generator = torch.Generator().manual_seed(1)
    token_weights = 20 * torch.randn(1, 40, 300, generator=generator)
    blank_weights = 20 * torch.randn(1, 41, 300, generator=generator)
    lengths = (torch.tensor([40]), torch.tensor([300]))
    _, token_grads, blank_grads = scores_and_gradients(token_weights, blank_weights, *lengths)
    _, exact_token, exact_blank = scores_and_gradients(token_weights.double(), blank_weights.double(), *lengths)
    torch.testing.assert_close(
        (token_grads.double(), blank_grads.double()), (exact_token, exact_blank), rtol=1e-6, atol=1e-7
    )
    # Every alignment leaves each frame once.
    torch.testing.assert_close(blank_grads.sum(1), torch.ones(1, 300), rtol=1e-5, atol=0)


@pytest.mark.parametrize("seed", range(3))
def test_gradcheck(seed):
    token_weights, blank_weights, token_lengths, frame_lengths = random_lattices(seed, sequences=3, tokens=3, frames=4)
    frame_lengths = frame_lengths.clamp(min=1)
    arguments = (token_weights.requires_grad_(), blank_weights.requires_grad_(), token_lengths, frame_lengths, "torch")
    assert torch.autograd.gradcheck(sequence_scores, arguments)


@pytest.mark.parametrize("backend", BACKENDS)
def test_upstream_gradients_scale_occupations(backend):
    token_weights, blank_weights, *lengths = random_lattices(3)
    _, token_grads, blank_grads = scores_and_gradients(token_weights, blank_weights, *lengths, backend=backend)
    upstream = torch.arange(6, dtype=torch.float64) - 2
    leaves = (token_weights.clone().requires_grad_(), blank_weights.clone().requires_grad_())
    scores = sequence_scores(*leaves, *lengths, backend=backend)
    grads = torch.autograd.grad(scores, leaves, upstream)
    torch.testing.assert_close(grads[0], token_grads * upstream[:, None, None], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(grads[1], blank_grads * upstream[:, None, None], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_unreachable_is_minus_infinity_with_zero_gradient(backend):
    token_weights, blank_weights, _, _ = random_lattices(0, sequences=3, tokens=2, frames=3)
    token_weights[0, 1] = -math.inf  # the second token can never be emitted
    blank_weights[1, :, 1] = -math.inf  # the second frame can never be left
    lengths = (torch.tensor([2, 2, 2]), torch.tensor([3, 3, 0]))  # the third has tokens but no frame
    leaves = (token_weights.requires_grad_(), blank_weights.requires_grad_())
    scores = sequence_scores(*leaves, *lengths, backend=backend)
    assert scores.tolist() == [-math.inf] * 3
    for grad in torch.autograd.grad(scores, leaves, torch.ones(3, dtype=torch.float64)):
        assert torch.equal(grad, torch.zeros_like(grad))


@pytest.mark.parametrize("backend", BACKENDS)
def test_degenerate_shapes(backend):
    def scores(tokens, frames, token_lengths, frame_lengths):
        sequences = len(token_lengths)
        return sequence_scores(
            torch.full((sequences, tokens, frames), 2.0),
            torch.full((sequences, tokens + 1, frames), -1.0),
            torch.tensor(token_lengths, dtype=torch.int64),
            torch.tensor(frame_lengths, dtype=torch.int64),
            backend=backend,
        ).tolist()

    assert scores(0, 4, [0, 0], [4, 2]) == [-4.0, -2.0]  # no token: blanks alone
    assert scores(3, 1, [3, 1], [1, 1]) == [5.0, 1.0]  # one frame: one alignment
    assert scores(2, 3, [], []) == []
    assert scores(2, 0, [0, 2], [0, 0]) == [0.0, -math.inf]
    assert scores(2, 3, [0, 0], [0, 1]) == [0.0, -1.0]  # an empty entry among others


@pytest.mark.parametrize("backend", BACKENDS)
def test_padding_and_neighbours_change_nothing(backend):
    token_weights, blank_weights, token_lengths, frame_lengths = random_lattices(5, sequences=5)
    frame_lengths = frame_lengths.clamp(min=1)
    together = scores_and_gradients(token_weights, blank_weights, token_lengths, frame_lengths, backend=backend)
    for h in range(5):
        tokens, frames = int(token_lengths[h]), int(frame_lengths[h])
        alone = scores_and_gradients(
            token_weights[h : h + 1, :tokens, :frames],
            blank_weights[h : h + 1, : tokens + 1, :frames],
            torch.tensor([tokens]),
            torch.tensor([frames]),
            backend=backend,
        )
        torch.testing.assert_close(together[0][h : h + 1], alone[0], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(together[1][h : h + 1, :tokens, :frames], alone[1], rtol=1e-12, atol=1e-12)
        assert together[1][h, tokens:].abs().sum() == 0 and together[2][h, :, frames:].abs().sum() == 0


def as_ours(case, row):
    """One row of a case of k2's in our topology, with functions that bring our gradients back to k2's layout.

    k2 may emit tokens after the last blank: one more frame here, left by a blank of weight 0. In its modified
    topology a token also moves on by one frame; with time counted from the token (t - s) that is ours again.
    """
    weights = {
        name: torch.tensor([float(x) for x in flatten(case[name])], dtype=torch.float64).reshape(case[f"{name}_shape"])[
            row
        ]
        for name in ("px", "py")
    }
    tokens, columns = case["px_shape"][1:]
    frames = columns if case["modified"] else columns - 1
    first_token, first_frame, last_token, last_frame = (case["boundary"] or [[0, 0, tokens, frames]] * (row + 1))[row]
    tokens, frames = last_token - first_token, last_frame - first_frame
    shift = 1 if case["modified"] else 0
    length = frames - shift * tokens + 1
    token_weights, blank_weights = torch.zeros(1, tokens, max(length, 0)), torch.zeros(1, tokens + 1, max(length, 0))
    token_weights, blank_weights = token_weights.double(), blank_weights.double()
    for t in range(length):
        for s in range(tokens):
            token_weights[0, s, t] = weights["px"][first_token + s, first_frame + t + shift * s]
        for s in range(tokens + 1):
            if t < length - 1:
                blank_weights[0, s, t] = weights["py"][first_token + s, first_frame + t + shift * s]
    # Only the complete sequence may take the added last blank.
    blank_weights[0, :-1, -1:] = -math.inf
    return (
        token_weights,
        blank_weights,
        torch.tensor([tokens]),
        torch.tensor([max(length, 0)]),
        shift,
        first_token,
        first_frame,
    )


def flatten(values):
    return [x for value in values for x in flatten(value)] if isinstance(values, list) else [values]


@pytest.mark.parametrize("case", K2_REFERENCE, ids=lambda case: case["name"])
def test_torch_backend_equals_recorded_k2(case):
    tolerance = 1e-9 if case["dtype"] == "float64" else 1e-4
    for row in range(case["px_shape"][0]):
        *lattice, shift, first_token, first_frame = as_ours(case, row)
        scores, token_grads, blank_grads = scores_and_gradients(*lattice)
        assert scores.item() == pytest.approx(float(case["scores"][row]), rel=tolerance, abs=tolerance)
        if row in case["infeasible_rows"]:
            continue
        expected = {name: case[f"{name}_grad"][row] for name in ("px", "py")}
        for s in range(token_grads.shape[1]):
            for t in range(token_grads.shape[2]):
                theirs = float(expected["px"][first_token + s][first_frame + t + shift * s])
                assert token_grads[0, s, t].item() == pytest.approx(theirs, rel=1e-4, abs=max(tolerance, 1e-9))
        for s in range(blank_grads.shape[1]):
            for t in range(blank_grads.shape[2] - 1):
                theirs = float(expected["py"][first_token + s][first_frame + t + shift * s])
                assert blank_grads[0, s, t].item() == pytest.approx(theirs, rel=1e-4, abs=max(tolerance, 1e-9))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(blank_weights=torch.zeros(2, 3, 4)), "blank_weights has shape"),
        (dict(blank_weights=torch.zeros(3, 4, 4)), "blank_weights has shape"),
        (dict(token_weights=torch.zeros(2, 3)), "token_weights must be"),
        (dict(token_weights=torch.zeros(2, 3, 4).half()), "token_weights is torch.float16"),
        (dict(blank_weights=torch.zeros(2, 4, 4).double()), "blank_weights must have the dtype"),
        (dict(token_lengths=torch.tensor([3, 4])), "token_lengths must be between 0 and 3"),
        (dict(token_lengths=torch.tensor([-1, 3])), "token_lengths must be between 0 and 3"),
        (dict(frame_lengths=torch.tensor([4, 5])), "frame_lengths must be between 0 and 4"),
        (dict(frame_lengths=torch.tensor([4])), "frame_lengths must be 2 integers"),
        (dict(frame_lengths=torch.tensor([4.0, 2.0])), "frame_lengths must be 2 integers"),
        (dict(token_weights=torch.full((2, 3, 4), math.nan)), "token_weights holds NaN"),
        (dict(blank_weights=torch.full((2, 4, 4), math.inf)), "blank_weights holds NaN or"),
        (dict(backend="k3"), "backend is 'k3'"),
    ],
)
def test_bad_input_is_named(change, message):
    arguments = dict(
        token_weights=torch.zeros(2, 3, 4),
        blank_weights=torch.zeros(2, 4, 4),
        token_lengths=torch.tensor([3, 2]),
        frame_lengths=torch.tensor([4, 4]),
    )
    with pytest.raises(ValueError, match=message):
        sequence_scores(**(arguments | change))


def test_the_last_point_of_a_sequence_without_frames_is_the_first_of_all():
    found = diagonals.final_points(torch.tensor([2, 0, 0, 3]), torch.tensor([4, 1, 0, 0]))
    assert [x.tolist() for x in found] == [[3 + 2, 0, 0, 0], [0, 1, 2, 3], [2, 0, 0, 0]]


@pytest.fixture
def modules(monkeypatch):
    """Decides which modules can be imported: a dictionary by name."""
    found = {}

    def import_module(name):
        if name in found:
            return found[name]
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(recursion.importlib, "import_module", import_module)
    recursion._try_import.cache_clear()
    yield found
    recursion._try_import.cache_clear()


def backend_module(**attributes):
    return SimpleNamespace(mutual_information_recursion=None, **attributes)


def by_enumeration(token_weights, blank_weights, boundary, return_grad):
    """What k2's function is for, by enumeration: paths of s tokens and t blanks, which may end with either."""
    assert return_grad and boundary[:, :2].eq(0).all()
    scores, grads = [], (torch.zeros_like(token_weights), torch.zeros_like(blank_weights))
    for row, (_, _, tokens, frames) in enumerate(boundary.tolist()):
        paths = []
        for places in itertools.combinations(range(tokens + frames), tokens):
            emitted = [place in places for place in range(tokens + frames)]
            befores = [(sum(emitted[:place]), place - sum(emitted[:place])) for place in range(tokens + frames)]
            paths.append([(0 if emits else 1, row, *before) for emits, before in zip(emitted, befores, strict=True)])
        weights = [
            sum(float((token_weights, blank_weights)[kind][row, s, t]) for kind, row, s, t in path) for path in paths
        ]
        scores.append(oracles.log_sum_exp(weights))
        for path, weight in zip(paths, weights, strict=True):
            for kind, row, s, t in path:
                # As k2's, gradients of what cannot be reached are no numbers.
                grads[kind][row, s, t] += math.exp(weight - scores[-1]) if scores[-1] > -math.inf else math.nan
    return torch.tensor(scores, dtype=token_weights.dtype), grads


@pytest.mark.parametrize("blocked", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(6))
def test_what_k2_is_asked_for_is_our_score(modules, seed, blocked):
    modules["k2"] = SimpleNamespace(mutual_information_recursion=by_enumeration)
    case = random_lattices(seed, tokens=3, frames=4, blocked=blocked)
    torch.testing.assert_close(
        scores_and_gradients(*case, backend="k2"), oracle_scores_and_gradients(*case), rtol=1e-9, atol=1e-9
    )


def test_a_folder_that_is_named_like_a_backend_is_none(modules):
    modules["k2"] = SimpleNamespace(__path__=["/somewhere/k2"])
    assert resolve_backend("auto", torch.device("cpu")) == "torch"
    with pytest.raises(ValueError, match="k2 from .*/somewhere/k2.* has no mutual_information_recursion"):
        resolve_backend("k2", torch.device("cpu"))


def test_missing_backend_says_what_to_do(modules):
    with pytest.raises(ValueError, match="backend is 'k2', but it does not import .* set the backend to 'torch'"):
        resolve_backend("k2", torch.device("cpu"))
    assert resolve_backend("auto", torch.device("cuda")) == resolve_backend("auto", torch.device("cpu")) == "torch"


@pytest.mark.parametrize("with_cuda", [True, lambda: True], ids=["constant", "function"])
def test_auto_takes_kernels_built_for_the_device(modules, with_cuda):
    modules["fast_rnnt"] = backend_module(with_cuda=False)
    assert resolve_backend("auto", torch.device("cpu")) == "fast_rnnt"
    assert resolve_backend("auto", torch.device("cuda")) == "torch"
    recursion._try_import.cache_clear()
    modules["k2"] = backend_module(with_cuda=with_cuda)
    assert resolve_backend("auto", torch.device("cpu")) == resolve_backend("auto", torch.device("cuda")) == "k2"
    assert resolve_backend("auto", torch.device("mps")) == "torch"
