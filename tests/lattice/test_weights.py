"""Invariant: weights computed in tiles equal the textbook joiner at every lattice point, and so do their gradients;
nothing the size of points x J or points x V survives the forward pass.
"""

import itertools

import pytest
import torch

from transducer_gn.common import quick
from transducer_gn.lattice import tiles
from transducer_gn.lattice.arcs import Rows
from transducer_gn.lattice.joint import LatticeInputs, OutputLayer
from transducer_gn.lattice.log_sums import squared_log_sums
from transducer_gn.lattice.points import Points
from transducer_gn.lattice.weights import full_weights, pair_weights

FRAME_LENGTHS = [7, 0, 5]
ROW_COUNTS = [4, 2, 3]
WIDTH, VOCABULARY = 6, 5
NEGLIGIBLE = 1e-5


def random_joiner(seed, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    frames, prefixes = normal(3, 7, WIDTH), normal(9, WIDTH)
    tokens = torch.randint(0, VOCABULARY, (9,), generator=generator)
    return frames, prefixes, tokens, normal(VOCABULARY, WIDTH), normal(VOCABULARY)


def textbook(frames, prefixes, tokens, weight, bias):
    """(blank, token, log_sum), each [R, T], from dense logits; 0 beyond an utterance's frames."""
    utterances = torch.repeat_interleave(torch.arange(3), torch.tensor(ROW_COUNTS))
    logits = torch.tanh(frames[utterances] + prefixes[:, None]) @ weight.t() + bias
    valid = torch.arange(frames.shape[1]) < torch.tensor(FRAME_LENGTHS)[utterances, None]
    picked = logits.gather(2, tokens[:, None, None].expand(*logits.shape[:2], 1))[..., 0]
    return tuple(torch.where(valid, x, 0) for x in (logits[..., 0], picked, logits.logsumexp(2)))


def tiled(function, frames, prefixes, tokens, weight, bias, negligible=0.0):
    """Rows go through the prefixes in another order than they are stored in."""
    nodes = torch.tensor([3, 1, 0, 2, 5, 4, 8, 6, 7])
    utterances = torch.repeat_interleave(torch.arange(3), torch.tensor(ROW_COUNTS))
    stored = torch.zeros_like(prefixes).index_copy(0, nodes, prefixes)
    inputs = LatticeInputs(frames, torch.tensor(FRAME_LENGTHS), stored, OutputLayer(weight, bias))
    return function(inputs, Rows(nodes, tokens, utterances, ROW_COUNTS), negligible)


def gradients(outputs, leaves, seed):
    """Gradients of a random projection of the outputs."""
    generator = torch.Generator().manual_seed(seed)
    total = sum((x * torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x)).sum() for x in outputs)
    return torch.autograd.grad(total, leaves)


@pytest.fixture(params=[2, 12, 33, 1000])
def tile_points(request, monkeypatch):
    monkeypatch.setitem(tiles.PAIR_POINTS, "cpu", request.param)
    monkeypatch.setitem(tiles.FULL_POINTS, "cpu", request.param)


@pytest.fixture(params=[False, True], ids=["by utterance", "across utterances"])
def across(request, monkeypatch):
    """Tiles as on a CPU, and as on a GPU where rows are few."""
    monkeypatch.setitem(tiles.ACROSS_UTTERANCES, "cpu", request.param)
    monkeypatch.setattr(tiles, "MORE_TILES", 0)


@pytest.mark.usefixtures("tile_points", "across")
@pytest.mark.parametrize(("function", "outputs"), [(pair_weights, 2), (full_weights, 3)])
@pytest.mark.parametrize("seed", range(5))
def test_tiles_equal_the_textbook(function, outputs, seed):
    joiner = random_joiner(seed)
    leaves = [x for x in joiner if x.requires_grad]
    computed, expected = tiled(function, *joiner), textbook(*joiner)[:outputs]
    valid = expected[0] != 0
    for ours, theirs in zip(computed, expected, strict=True):
        torch.testing.assert_close(ours[valid], theirs[valid], rtol=1e-10, atol=1e-10)
    masked = [torch.where(valid, x, 0) for x in computed]
    torch.testing.assert_close(gradients(masked, leaves, seed), gradients(expected, leaves, seed), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("function", [pair_weights, full_weights])
def test_float32(function):
    joiner = random_joiner(0, torch.float32)
    expected = textbook(*(x.double() if x.is_floating_point() else x for x in joiner))
    valid = expected[0] != 0
    for ours, theirs in zip(tiled(function, *joiner), expected, strict=False):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours[valid].double(), theirs[valid], rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("across")
@pytest.mark.parametrize("quickly", [True, False])
@pytest.mark.parametrize(("function", "outputs"), [(pair_weights, 2), (full_weights, 3)])
def test_gradients_in_float32(function, outputs, quickly, monkeypatch):
    """Where tanh and products are others than in float64."""
    monkeypatch.setattr(quick, "DEVICES", {"cpu"} if quickly else set())
    monkeypatch.setattr(quick, "ROWS", (8, 2))
    joiner = random_joiner(0, torch.float32)
    exact = [x.detach().double().requires_grad_() if x.is_floating_point() else x for x in joiner]
    computed, expected = tiled(function, *joiner), textbook(*exact)[:outputs]
    valid = expected[0] != 0
    found = gradients([torch.where(valid, x, 0) for x in computed], [x for x in joiner if x.requires_grad], 0)
    wanted = gradients(expected, [x for x in exact if x.requires_grad], 0)
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("across")
@pytest.mark.parametrize("function", [pair_weights, full_weights])
def test_gradcheck(function):
    frames, prefixes, tokens, weight, bias = random_joiner(3)
    valid = textbook(frames, prefixes, tokens, weight, bias)[0] != 0

    def valid_outputs(frames, prefixes, weight, bias):
        return [x[valid] for x in tiled(function, frames, prefixes, tokens, weight, bias)]

    assert torch.autograd.gradcheck(valid_outputs, (frames, prefixes, weight, bias))


@pytest.mark.usefixtures("across")
@pytest.mark.parametrize("function", [pair_weights, full_weights])
def test_negligible_gradients_are_left_out_within_the_bound(function):
    frames, prefixes, tokens, weight, bias = random_joiner(1)
    outputs = tiled(function, frames, prefixes, tokens, weight, bias, negligible=1e-3)
    exact = tiled(function, frames, prefixes, tokens, weight, bias, negligible=0.0)
    # Occupations that fall off steeply from frame 3 on either side, as those of a trained model do.
    falling = torch.exp(-6.0 * (torch.arange(7.0, dtype=torch.float64) - 3).abs()).expand(9, 7)
    upstream = [falling] * len(outputs)
    leaves = (frames, prefixes)
    approximate = torch.autograd.grad(outputs, leaves, upstream)
    for ours, theirs in zip(approximate, torch.autograd.grad(exact, leaves, upstream), strict=True):
        assert not torch.equal(ours, theirs), "nothing was left out"
        # tanh' <= 1, so that a point passes on at most its own gradient times its largest weight.
        assert (ours - theirs).abs().max() <= 1e-3 * len(outputs) * 2 * weight.abs().max()


@pytest.mark.usefixtures("across")
@pytest.mark.parametrize("function", [pair_weights, full_weights])
def test_zero_gradients_give_zero(function):
    joiner = random_joiner(2)
    outputs = tiled(function, *joiner, negligible=NEGLIGIBLE)
    for grad in torch.autograd.grad(outputs, joiner[:2], [torch.zeros_like(x) for x in outputs]):
        assert grad.abs().max() == 0


@pytest.mark.usefixtures("across")
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("function", [pair_weights, full_weights])
def test_a_gradient_that_is_no_finite_number_is_passed_on_beside_all_others(function, value):
    joiner = random_joiner(2)
    with torch.no_grad():
        joiner[0][2, 5:] = torch.nan  # padding, which is not read for all that
    outputs = tiled(function, *joiner, negligible=NEGLIGIBLE)
    upstream = [torch.zeros_like(x) for x in outputs]
    upstream[0][0, 3] = value
    upstream[0][8, 4] = 1.0
    frame_grads, prefix_grads = torch.autograd.grad(outputs, joiner[:2], upstream)
    assert not frame_grads[0, 3].isfinite().any() and not prefix_grads[0].isfinite().any()
    for other in (frame_grads[2, 4], prefix_grads[8]):
        assert other.isfinite().all() and other.any()


@pytest.mark.usefixtures("tile_points", "across")
@pytest.mark.parametrize("function", [pair_weights, full_weights])
def test_padding_is_never_read(function):
    frames, *rest = random_joiner(1)
    padded = frames.detach().clone()
    padded[0, 7:], padded[1], padded[2, 5:] = torch.nan, torch.nan, torch.nan
    outputs = [tiled(function, x, *rest) for x in (frames, padded.requires_grad_())]
    valid = textbook(frames, *rest)[0] != 0
    for plain, beside_nothing in zip(*outputs, strict=True):
        assert torch.equal(plain[valid], beside_nothing[valid]) and beside_nothing.isfinite().all()
    first, second = (gradients([torch.where(valid, x, 0) for x in out], (leaf, rest[0]), 1)
                     for out, leaf in zip(outputs, (frames, padded), strict=True))  # fmt: skip
    torch.testing.assert_close(first, second, rtol=0, atol=1e-12)


@pytest.mark.parametrize("points", [1, 7, 12, 20, 35, 64, 1000])
def test_tiles_cover_every_row_once_within_their_size(points, monkeypatch):
    monkeypatch.setattr(tiles, "MORE_TILES", 0)
    counts, frame_counts = [4, 2, 3, 5, 0, 1], [7, 0, 5, 9, 3, 2]
    utterances = torch.repeat_interleave(torch.arange(6), torch.tensor(counts))
    rows = Rows(torch.arange(15), torch.zeros(15, dtype=torch.int64), utterances, counts)
    for across in (False, True):
        found = tiles.make_tiles(rows, frame_counts, points, across)
        covered = [row for tile in found for row in range(tile.rows.start, tile.rows.stop)]
        with_frames = [row for row, b in enumerate(utterances.tolist()) if frame_counts[b]]
        assert len(set(covered)) == len(covered) and set(with_frames) <= set(covered)
        for tile in found:
            longest = max(frame_counts[b] for b in utterances[tile.rows].tolist())
            assert tile.frames == slice(0, longest)
            assert tile.shape[0] == 1 or tile.shape[0] * tile.shape[1] <= points
    # Across utterances no tile could have taken the next one's first row.
    for tile, after in itertools.pairwise(found):
        longest = max(tile.frames.stop, frame_counts[utterances[after.rows.start]])
        assert (tile.shape[0] + 1) * longest > points


@pytest.mark.parametrize(("points", "shared"), [(20, False), (1000, True)])
def test_rows_of_an_utterance_that_fill_tiles_by_themselves_share_its_frames(points, shared):
    utterances = torch.arange(3).repeat_interleave(20)
    rows = Rows(torch.arange(60), torch.zeros(60, dtype=torch.int64), utterances, [20, 20, 20])
    found = tiles.make_tiles(rows, [10, 10, 10], points, across=True)
    assert {type(tile) for tile in found} == {tiles.SharedTile if shared else tiles.UtteranceTile}
    assert len(found) == (1 if points == 1000 else 30)


@pytest.mark.usefixtures("across")
@pytest.mark.parametrize("function", [pair_weights, full_weights])
def test_no_large_tensor_survives_the_forward_pass(function):
    frames, prefixes, tokens, weight, bias = random_joiner(0, torch.float32)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(tuple(x.shape)) or x, lambda x: x):
        tiled(function, frames, prefixes, tokens, weight, bias)
    # As large as the frames, or their mask, is not large.
    assert kept and all(len(shape) < 3 or shape[:2] == frames.shape[:2] for shape in kept), kept


def test_autocast_leaves_full_precision():
    joiner = random_joiner(0, torch.float32)
    plain = tiled(full_weights, *joiner)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = tiled(full_weights, *joiner)
        gradient = torch.autograd.grad(cast[2].sum(), joiner[0])[0]
    torch.testing.assert_close(cast, plain, rtol=0, atol=0)
    torch.testing.assert_close(gradient, torch.autograd.grad(plain[2].sum(), joiner[0])[0], rtol=0, atol=0)


@pytest.mark.parametrize("seed", range(5))
def test_squared_log_sums_equal_the_textbook(seed, monkeypatch):
    monkeypatch.setitem(tiles.FULL_POINTS, "cpu", 4)
    frames, prefixes, _, weight, bias = random_joiner(seed)
    leaves = (frames, prefixes, weight, bias)
    generator = torch.Generator().manual_seed(seed)
    points = Points(
        torch.randint(0, 21, (11,), generator=generator),
        torch.randint(0, 9, (11,), generator=generator),
        torch.rand(11, generator=generator, dtype=torch.float64),
    )
    hidden = torch.tanh(frames.flatten(0, 1)[points.frames] + prefixes[points.prefixes])
    expected = (points.factors * (hidden @ weight.t() + bias).logsumexp(1).square()).sum()
    inputs = LatticeInputs(frames, torch.tensor(FRAME_LENGTHS), prefixes, OutputLayer(weight, bias))
    computed = squared_log_sums(inputs, points)
    torch.testing.assert_close(computed, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(
        torch.autograd.grad(3 * computed, leaves), torch.autograd.grad(3 * expected, leaves), rtol=1e-9, atol=1e-9
    )


def test_squared_log_sums_of_no_points_is_zero():
    frames, prefixes, _, weight, bias = random_joiner(0)
    nothing = torch.zeros(0, dtype=torch.int64)
    inputs = LatticeInputs(frames, torch.tensor(FRAME_LENGTHS), prefixes, OutputLayer(weight, bias))
    total = squared_log_sums(inputs, Points(nothing, nothing, torch.zeros(0).double()))
    assert total == 0 and torch.autograd.grad(total, weight)[0].abs().sum() == 0


@pytest.mark.parametrize(
    ("frame_lengths", "row_counts", "message"),
    [
        ([7, 0], ROW_COUNTS, "frame_lengths"),
        ([8, 0, 5], ROW_COUNTS, "frame_lengths"),
        ([7, -1, 5], ROW_COUNTS, "frame_lengths"),
        (FRAME_LENGTHS, [4, 2, 4], "must be 9 in all"),
        (FRAME_LENGTHS, [4, 5], "of 3 utterances"),
    ],
)
def test_bad_input_is_named(frame_lengths, row_counts, message):
    frames, prefixes, tokens, weight, bias = random_joiner(0)
    rows = Rows(torch.arange(9), tokens, torch.zeros(9, dtype=torch.int64), row_counts)
    with pytest.raises(ValueError, match=message):
        pair_weights(LatticeInputs(frames, torch.tensor(frame_lengths), prefixes, OutputLayer(weight, bias)), rows)
