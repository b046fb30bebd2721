"""Invariant: the exact objective is the formula with Z over every label sequence, and no list can do better."""

import oracles
import pytest
import torch

from transducer_gn.lattice import finite_state
from transducer_gn.lattice.joint import LatticeInputs, OutputLayer
from transducer_gn.lattice.prefix_tree import build_prefix_tree
from transducer_gn.training.exact_objective import exact_objective
from transducer_gn.training.nbest_objective import nbest_objective
from transducer_gn.training.schedule import SchedulePoint

WIDTH, VOCABULARY, CONTEXT, LIMIT = 4, 3, 1, 2


def random_case(seed, utterances=2, frames=3):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    tokens = torch.randint(1, VOCABULARY, (utterances, 2), generator=generator)
    lengths = torch.randint(0, 3, (utterances,), generator=generator)
    frame_lengths = torch.randint(1, frames + 1, (utterances,), generator=generator)
    return (
        normal(utterances, frames, WIDTH), frame_lengths, normal(VOCABULARY**CONTEXT, WIDTH), tokens, lengths,
        normal(VOCABULARY, WIDTH), normal(VOCABULARY),
    )  # fmt: skip


def objective(case, point, limit=LIMIT):
    frames, frame_lengths, states, tokens, lengths, weight, bias = case
    inputs = LatticeInputs(frames, frame_lengths, states, OutputLayer(weight, bias))
    return exact_objective(inputs, tokens, lengths, point, limit)


def drawn_to_the_diagonal(labels, strength):
    """What the prior takes from the weight of a label sequence."""
    frames = [frame for frame, tokens in enumerate(labels) for _ in tokens]
    distances = ((t + 0.5) / len(labels) - (u + 0.7) / len(frames) for u, t in enumerate(frames))
    return strength * sum(distance**2 for distance in distances)


def literal(case, alpha, regulariser_weight, diagonal_prior=0.0):
    frames, frame_lengths, states, tokens, lengths, weight, bias = (x.detach() for x in case)
    logits = torch.tanh(frames[:, :, None] + states) @ weight.t() + bias
    log_sums = logits.logsumexp(-1)
    total = 0.0
    for b, length in enumerate(frame_lengths.tolist()):
        reference = tuple(tokens[b, : lengths[b]].tolist())
        interpolated = (logits[b] - alpha * log_sums[b][..., None]).tolist()
        numerator = oracles.log_sum_exp(
            [
                oracles.label_sequence_weight(interpolated, CONTEXT, labels)
                - drawn_to_the_diagonal(labels, diagonal_prior)
                for labels in oracles.label_sequences(VOCABULARY, length, LIMIT)
                if oracles.tokens_of(labels) == reference
            ]
        )
        log_z = oracles.log_normaliser(logits[b].tolist(), CONTEXT, VOCABULARY, length, LIMIT)
        total += (1 - alpha) * log_z - numerator
        total += regulariser_weight * length * float(log_sums[b, :length].square().mean())
    return total


@pytest.mark.parametrize("alpha", [1.0, 0.3, 0.0])
@pytest.mark.parametrize("seed", range(6))
def test_equals_the_formula_written_out(seed, alpha, monkeypatch):
    # Room for hidden vectors of less than a frame, or of two.
    monkeypatch.setitem(finite_state.POINTS, "cpu", (2, 7)[seed % 2])
    case = random_case(seed)
    result = objective(case, SchedulePoint(alpha, 0.1))
    assert result.loss.item() == pytest.approx(literal(case, alpha, 0.1), rel=1e-9)


@pytest.mark.parametrize("alpha", [1.0, 0.3])
@pytest.mark.parametrize("seed", range(6))
def test_diagonal_prior_is_on_the_alignments_of_the_reference(seed, alpha):
    case = random_case(seed)
    result = objective(case, SchedulePoint(alpha, 0.1, diagonal_prior=20.0))
    # Penalties are computed in float32, whatever the weights are.
    assert result.loss.item() == pytest.approx(literal(case, alpha, 0.1, 20.0), rel=1e-6)


def test_metrics_at_alpha_1_are_without_a_normaliser(monkeypatch):
    case = random_case(2)
    values = objective(case, SchedulePoint(0.999, 0.0)).metrics()
    monkeypatch.delattr("transducer_gn.training.exact_objective.log_normaliser")  # nobody may ask for Z
    local = objective(case, SchedulePoint(1.0, 0.0)).metrics()
    assert values.keys() - local.keys() == {"log_normaliser", "reference_share"}
    assert local["numerator"] == pytest.approx(values["numerator"], rel=0.01)


def test_gradcheck():
    case = random_case(1)

    def loss(frames, states, weight, bias):
        return objective((frames, case[1], states, *case[3:5], weight, bias), SchedulePoint(0.3, 0.1)).loss

    assert torch.autograd.gradcheck(loss, (case[0], case[2], case[5], case[6]))


def test_an_nbest_list_underestimates_the_loss():
    # The paper's caveat: a list covers only a part of Z, so that its loss is too low. Here it can be seen.
    case = frames, frame_lengths, states, tokens, lengths, weight, bias = random_case(3, utterances=1)
    point = SchedulePoint(0.0, 0.0)
    exact = objective(case, point, limit=6)
    listed = torch.cat([tokens[:, None], torch.tensor([[[1, 1], [2, 1]]])], dim=1)
    tree = build_prefix_tree(listed, torch.cat([lengths[:, None], torch.tensor([[2, 1]])], dim=1))
    prefixes = states[tree.tokens]  # with a context of one, a prefix's state is its last token
    nbest = nbest_objective(LatticeInputs(frames, frame_lengths, prefixes, OutputLayer(weight, bias)), tree, point)
    assert nbest.loss.item() < exact.loss.item()


def test_hidden_vectors_are_computed_again_in_backward():
    frames, frame_lengths, states, _, _, weight, bias = random_case(0)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.shape) or x, lambda x: x):
        finite_state.state_logits(LatticeInputs(frames, frame_lengths, states, OutputLayer(weight, bias)))
    hidden = frames.numel() * len(states)
    assert kept and all(shape.numel() < hidden for shape in kept), kept
