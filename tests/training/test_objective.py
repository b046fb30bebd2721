"""Invariant: the objective on shared prefixes and few weights equals the paper's formula written out, in value and in
every gradient; its sample of the regulariser has the right expectation.
"""

import itertools
import math

import oracles
import pytest
import torch
from list_cases import EXACT, WIDTH, AllSequences, Case, lattice_inputs

from transducer_gn.common.errors import UserError
from transducer_gn.config import ObjectiveConfig
from transducer_gn.lattice import finite_state, recursion, tiles, tree_lattice
from transducer_gn.lattice.prefix_tree import build_prefix_tree
from transducer_gn.training.nbest_objective import nbest_objective, nbest_terms
from transducer_gn.training.objective import metrics
from transducer_gn.training.schedule import SchedulePoint


@pytest.mark.parametrize("alpha", [1.0, 0.3, 0.0])
@pytest.mark.parametrize("regulariser_weight", [0.0, 0.01, 0.5])
@pytest.mark.parametrize("seed", range(8))
def test_equals_the_formula_written_out(seed, regulariser_weight, alpha):
    case = Case(seed)
    options = dict(alpha=alpha, regulariser_weight=regulariser_weight)
    expected = case.literal(**options)
    assert case.objective(**options).loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert case.dense(**options).loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("alpha", [1.0, 0.3])
@pytest.mark.parametrize("seed", range(8))
def test_diagonal_prior_is_on_the_alignments_of_the_reference(seed, alpha):
    case = Case(seed)
    expected = case.literal(alpha, 0.01, diagonal_prior=20.0)
    options = dict(alpha=alpha, regulariser_weight=0.01, diagonal_prior=20.0)
    found = case.objective(**options).loss.item()
    assert found == pytest.approx(expected, rel=1e-6) and found > case.objective(alpha=alpha).loss.item()
    assert case.dense(**options).loss.item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("alpha", [1.0, 0.3, 0.0])
@pytest.mark.parametrize("seed", range(20))
def test_gradients_equal_those_of_dense_lattices(seed, alpha, across, monkeypatch):
    monkeypatch.setitem(tiles.ACROSS_UTTERANCES, "cpu", across)
    monkeypatch.setattr(tiles, "MORE_TILES", 0)
    monkeypatch.setitem(tiles.PAIR_POINTS, "cpu", 3)
    monkeypatch.setitem(tiles.FULL_POINTS, "cpu", 7)
    case = Case(seed)
    options = dict(alpha=alpha, regulariser_weight=0.1)
    ours = torch.autograd.grad(case.objective(**options).loss, case.leaves)
    theirs = torch.autograd.grad(case.dense(**options).loss, case.leaves)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_float32_with_default_settings_is_close():
    case, double = Case(1, dtype=torch.float32), Case(1)
    options = dict(alpha=0.3, regulariser_weight=0.01)
    settings = ObjectiveConfig(regulariser_points="all")
    loss = case.objective(settings, **options).loss
    exact = double.objective(**options).loss
    assert loss.item() == pytest.approx(exact.item(), rel=1e-4)
    for ours, theirs in zip(
        torch.autograd.grad(loss, case.leaves), torch.autograd.grad(exact, double.leaves), strict=True
    ):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("seed", range(2))
def test_gradcheck(seed):
    case = Case(seed, utterances=2, sequences=3, longest=2, frames=3)

    def loss(frames, prefixes, weight, bias):
        inputs = lattice_inputs(frames, case.frame_lengths, prefixes, weight, bias)
        return nbest_objective(inputs, case.tree, SchedulePoint(0.3, 0.1), EXACT).loss

    assert torch.autograd.gradcheck(loss, case.leaves)


def test_alpha_1_is_the_transducer_loss_of_softmax_outputs():
    case = Case(4)
    expected = 0.0
    for b, frames in enumerate(case.frame_lengths.tolist()):
        probabilities = case.logits(b, 0).log_softmax(-1)
        length = int(case.lengths[b, 0])
        token = [probabilities[u, :, int(case.tokens[b, 0, u])].tolist() for u in range(length)]
        expected -= oracles.sequence_score(token, probabilities[..., 0].tolist(), length, frames)
    assert case.objective(alpha=1.0).loss.item() == pytest.approx(expected, rel=1e-9)


def test_list_of_all_sequences_gives_the_exactly_normalised_loss():
    case = AllSequences()
    loss = nbest_objective(case.inputs, case.tree, SchedulePoint(0.0, 0.0)).loss
    log_z = finite_state.log_normaliser(case.logits[None], torch.tensor([case.frames]), case.limit)
    score = math.log(sum(weight for tokens, weight in case.labels() if tokens == case.reference))
    assert loss.item() == pytest.approx(log_z.item() - score, rel=1e-6)


def test_sampled_regulariser_is_unbiased():
    case = Case(2)
    options = dict(alpha=0.3, regulariser_weight=0.5)
    exact = case.objective(**options).loss
    exact_grad = torch.autograd.grad(exact, case.weight)[0]
    generator = torch.Generator().manual_seed(5)
    settings = ObjectiveConfig(regulariser_points=3, negligible=0.0)
    losses, grads = [], []
    for _ in range(3000):
        loss = case.objective(settings, generator=generator, **options).loss
        losses.append(loss.detach())
        grads.append(torch.autograd.grad(loss, case.weight)[0])
    losses, grads = torch.stack(losses), torch.stack(grads)
    assert losses.std() > 0
    for samples, expected in ((losses, exact.detach()), (grads, exact_grad)):
        # Four standard errors: a bias as large as one draw's spread would be 55 of them.
        error = samples.std(0) / math.sqrt(len(samples))
        assert ((samples.mean(0) - expected).abs() <= 4 * error + 1e-9).all()


def test_sample_follows_its_seed():
    case = Case(2)
    settings = ObjectiveConfig(regulariser_points=4)
    options = dict(alpha=0.3, regulariser_weight=0.5, settings=settings)
    first, again, other = (
        case.objective(generator=torch.Generator().manual_seed(seed), **options).loss.item() for seed in (1, 1, 2)
    )
    assert first == again != other


def test_sum_over_utterances_does_not_depend_on_how_they_are_batched():
    case = Case(6)
    point = SchedulePoint(0.3, 0.1)
    together = nbest_objective(case.inputs(), case.tree, point, EXACT).loss
    alone = sum(nbest_objective(*case.alone(b), point, EXACT).loss.item() for b in range(3))
    assert together.item() == pytest.approx(alone, rel=1e-10)


def test_metrics_are_what_their_names_say():
    case = Case(3)
    result = case.objective(alpha=0.3, regulariser_weight=0.1)
    values = result.metrics()
    frames = int(case.frame_lengths.sum())
    assert values["loss"] == pytest.approx(result.loss.item() / frames)
    assert values["competitors"] == pytest.approx(case.tree.distinct[:, 1:].sum().item() / 3)
    rebuilt = 0.7 * values["log_normaliser"] - values["numerator"] + 0.1 * values["regulariser"]
    assert values["loss"] == pytest.approx(rebuilt)
    shares = [math.exp(-nbest_objective(*case.alone(b), SchedulePoint(0.0, 0.0)).loss.item()) for b in range(3)]
    assert values["reference_share"] == pytest.approx(sum(shares) / 3)
    doubled = metrics({name: 2 * value for name, value in result.sums.items()})
    assert doubled == pytest.approx(values)


def test_without_competitors_the_global_loss_vanishes():
    # The paper's failure mode: when the reference is alone, its share of Z is 1 and nothing is learnt.
    case = Case(1)
    tree = build_prefix_tree(case.tokens[:, :1], case.lengths[:, :1])
    prefixes = torch.randn(len(tree.parents), WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    inputs = lattice_inputs(case.frames, case.frame_lengths, prefixes, case.weight, case.bias)
    result = nbest_objective(inputs, tree, SchedulePoint(0.0, 0.0))
    assert result.loss.item() == pytest.approx(0.0, abs=1e-9)
    assert result.metrics()["reference_share"] == pytest.approx(1.0) and result.metrics()["competitors"] == 0


def test_raw_scores_are_those_of_the_sequences_as_the_paper_scores_them():
    case = Case(5)
    terms = nbest_terms(case.inputs(), case.tree, SchedulePoint(0.3, 0.0), EXACT)
    for b, s in itertools.product(range(3), range(5)):
        length, frames = int(case.lengths[b, s]), int(case.frame_lengths[b])
        if not case.tree.distinct[b, s]:
            assert terms.raw_scores[b, s] == -math.inf
            continue
        logits = case.logits(b, s).detach()
        token = [[float(logits[u, t, case.tokens[b, s, u]]) for t in range(frames)] for u in range(length)]
        expected = oracles.sequence_score(token, logits[..., 0].tolist(), length, frames)
        assert terms.raw_scores[b, s].item() == pytest.approx(expected, rel=1e-9)
    torch.testing.assert_close(terms.log_normaliser, terms.raw_scores.logsumexp(1))


@pytest.mark.parametrize("prior", [0.0, 20.0])
def test_the_local_loss_scores_references_alone(prior, monkeypatch):
    case = Case(3)
    scored = []

    def counted(token_weights, *arguments):
        scored.append(len(token_weights))
        return recursion.sequence_scores(token_weights, *arguments)

    monkeypatch.setattr(tree_lattice, "sequence_scores", counted)
    point = SchedulePoint(1.0, 0.1, prior)
    found = [nbest_objective(*case.alone(b, slice(0, 1)), point, EXACT) for b in range(3)]
    assert scored == [1, 1, 1]
    # A repeated reference is no competitor, but it is looked for: then all is scored, and nothing of it changes.
    twice = [nbest_objective(*case.alone(b, slice(0, 2)), point, EXACT) for b in range(3)]
    assert scored[3:] == [3, 3, 3]
    for alone, beside in zip(found, twice, strict=True):
        assert alone.loss.item() == beside.loss.item()
        gradients = (torch.autograd.grad(x.loss, case.leaves) for x in (alone, beside))
        assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_metrics_of_the_local_loss_have_no_normaliser():
    case = Case(3)
    local, other = (nbest_objective(*case.alone(0, slice(0, 1)), SchedulePoint(alpha, 0.0)) for alpha in (1.0, 0.5))
    values = local.metrics()
    assert "log_normaliser" not in values and values["reference_share"] == 1 and values["competitors"] == 0
    assert values["loss"] == -values["numerator"]
    assert math.isfinite(other.metrics()["log_normaliser"])
    # Beside batches of a later alpha there is no sum to report, but the other values are what they are.
    both = metrics({name: value + other.sums[name] for name, value in local.sums.items()})
    assert "log_normaliser" not in both and both["reference_share"] == pytest.approx(1.0)
    assert all(math.isfinite(value) for value in both.values())


def test_log_sums_to_look_at_are_those_of_existing_points():
    case = Case(1)
    found = case.objective(alpha=0.3).log_sums
    expected = [
        case.logits(b, 0).logsumexp(-1)[: length + 1, :frames].flatten()
        for b, (length, frames) in enumerate(zip(case.lengths[:, 0].tolist(), case.frame_lengths.tolist(), strict=True))
    ]
    torch.testing.assert_close(found[found != 0], torch.cat(expected))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(alpha=1.5), "alpha is 1.5"),
        (
            dict(frames=torch.zeros(2, 4, WIDTH), frame_lengths=torch.tensor([1, 1])),
            "frames must be those of the tree's 3",
        ),
        (dict(prefixes=torch.zeros(3, WIDTH)), "prefixes must be one for each"),
        (dict(frame_lengths=torch.tensor([1, 1])), "frame_lengths must be one integer for each of 3"),
        (dict(frame_lengths=torch.tensor([1, 1, 9])), r"frame_lengths \[1, 1, 9\] do not fit"),
        (dict(frames=torch.full((3, 4, WIDTH), math.nan).double()), "_weights holds NaN"),
    ],
)
def test_bad_input_is_named(change, message):
    case = Case(0)
    names = ("frames", "frame_lengths", "prefixes", "weight", "bias")
    arguments = {name: getattr(case, name) for name in names} | dict(alpha=0.3) | change
    alpha = arguments.pop("alpha")
    with pytest.raises(ValueError, match=message):
        nbest_objective(lattice_inputs(**arguments), case.tree, SchedulePoint(alpha, 0.0))


@pytest.mark.parametrize("points", [0, -3, "some", 1.5])
def test_bad_settings_are_named(points):
    with pytest.raises(UserError, match="regulariser_points"):
        ObjectiveConfig(regulariser_points=points)
