"""Invariant: W tanh(a + b) + c and the derivative written by hand beside it are what autograd makes of the formula,
wherever the results are written; inputs that do not fit each other are named.
"""

import pytest
import torch

from transducer_gn.lattice.joint import LatticeInputs, OutputLayer, hidden_vectors, joint_logits, to_sums_gradient

FRAMES, PREFIXES, WIDTH, VOCABULARY = 4, 3, 6, 5


@pytest.fixture
def case():
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    return normal(FRAMES, WIDTH), normal(PREFIXES, 1, WIDTH), OutputLayer(normal(VOCABULARY, WIDTH), normal(VOCABULARY))


def test_logits_are_the_formula_wherever_they_are_written(case):
    frames, prefixes, output = case
    for p in range(PREFIXES):
        for t in range(FRAMES):
            expected = output.weight @ torch.tanh(frames[t] + prefixes[p, 0]) + output.bias
            torch.testing.assert_close(joint_logits(frames, prefixes, output)[p, t], expected)
    with torch.no_grad():
        hidden = hidden_vectors(frames, prefixes, out=torch.empty(PREFIXES, FRAMES, WIDTH).double())
        logits = output.logits(hidden, out=torch.empty(PREFIXES, FRAMES, VOCABULARY).double())
    torch.testing.assert_close(logits, joint_logits(frames, prefixes, output))


def test_the_derivative_is_that_of_the_formula(case):
    frames, prefixes, output = case
    upstream = torch.randn(PREFIXES, FRAMES, VOCABULARY, generator=torch.Generator().manual_seed(1)).double()
    leaves = (frames, prefixes, output.weight, output.bias)
    expected = torch.autograd.grad(joint_logits(frames, prefixes, output), leaves, upstream)
    with torch.no_grad():
        sums = OutputLayer(torch.ones_like(output.weight), torch.ones_like(output.bias))  # they are added to
        hidden = hidden_vectors(frames, prefixes)
        grad = to_sums_gradient(output.backpropagate(upstream, hidden, sums).view(hidden.shape), hidden)
    found = (grad.sum(0), grad.sum(1, keepdim=True), sums.weight - 1, sums.bias - 1)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(frames=torch.zeros(2, WIDTH)), r"frames must be \[B, T, J\]"),
        (dict(frame_lengths=torch.tensor([1])), "frame_lengths must be one integer for each of 2"),
        (dict(frame_lengths=torch.tensor([1.0, 2.0])), "frame_lengths must be one integer"),
        (dict(prefixes=torch.zeros(3, WIDTH + 1)), "prefixes must be"),
        (dict(output=OutputLayer(torch.zeros(VOCABULARY, WIDTH + 1), torch.zeros(VOCABULARY))), "output must be"),
        (dict(output=OutputLayer(torch.zeros(VOCABULARY, WIDTH), torch.zeros(VOCABULARY + 1))), "output must be"),
    ],
)
def test_bad_input_is_named(change, message):
    arguments = dict(
        frames=torch.zeros(2, FRAMES, WIDTH),
        frame_lengths=torch.tensor([FRAMES, 1]),
        prefixes=torch.zeros(3, WIDTH),
        output=OutputLayer(torch.zeros(VOCABULARY, WIDTH), torch.zeros(VOCABULARY)),
    )
    LatticeInputs(**arguments)
    with pytest.raises(ValueError, match=message):
        LatticeInputs(**arguments | change)
