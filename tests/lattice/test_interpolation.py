"""Invariant: alpha 1 makes the weights of a point probabilities and leaves Z out, alpha 0 leaves weights alone and Z in
whole, and everything between lies on the straight line.
"""

import pytest
import torch

from transducer_gn.lattice.interpolation import Interpolation

GENERATOR = torch.Generator().manual_seed(0)
LOGITS = torch.randn(2, 3, 4, 5, generator=GENERATOR, dtype=torch.float64)  # [B, U + 1, T, V]
LOG_SUMS = LOGITS.logsumexp(-1)


@pytest.mark.parametrize("alpha", [1.0, 0.7, 0.0])
def test_weights_lie_between_probabilities_and_logits(alpha):
    found = Interpolation(alpha).weights(LOGITS, LOG_SUMS[..., None])
    torch.testing.assert_close(found, alpha * LOGITS.log_softmax(-1) + (1 - alpha) * LOGITS)
    torch.testing.assert_close(Interpolation(alpha).weights_at_once(LOGITS, LOG_SUMS[..., None]), found)


def test_arcs_are_the_weights_at_the_points_that_they_leave():
    interpolation = Interpolation(0.3)
    token, blank = interpolation.arcs(LOGITS[:, :-1, :, 2], LOGITS[..., 0], LOG_SUMS)
    everywhere = interpolation.weights(LOGITS, LOG_SUMS[..., None])
    assert torch.equal(token, everywhere[:, :-1, :, 2]) and torch.equal(blank, everywhere[..., 0])


@pytest.mark.parametrize("alpha", [1.0, 0.7, 0.0])
def test_loss(alpha):
    normalisers, numerators = torch.tensor([3.0, 5.0]), torch.tensor([-1.0, 2.0])
    expected = torch.tensor([3 * (1 - alpha) + 1, 5 * (1 - alpha) - 2])
    torch.testing.assert_close(Interpolation(alpha).loss(normalisers, numerators), expected)


def test_only_the_local_loss_does_without_a_normaliser():
    numerators = torch.tensor([-1.0, 2.0])
    assert Interpolation(1.0).is_local and Interpolation(1.0).loss(None, numerators).tolist() == [1.0, -2.0]
    assert not Interpolation(0.999).is_local
    with pytest.raises(ValueError, match="log Z may be left out only at alpha 1"):
        Interpolation(0.999).loss(None, numerators)


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan")])
def test_alpha_outside_its_range_is_refused(alpha):
    with pytest.raises(ValueError, match="between 0"):
        Interpolation(alpha)
