"""Invariant: output i is a function of features factor * i to factor * i + factor - 1 and of nothing else, whether an
utterance is encoded as a whole, beside others, or in pieces.
"""

import pytest
import torch
from small_models import shaken
from torch import Tensor

from transducer_gn.common.framing import Framing
from transducer_gn.model.stacking import Stacking


def small(factor: int) -> Stacking:
    torch.manual_seed(0)
    return shaken(Stacking(5, 8, factor)).eval()


def literal(module: Stacking, features: Tensor) -> Tensor:
    """One output [D] of `factor` vectors, by the formula."""
    y = module.output.weight() @ features.flatten() + module.output.bias()
    return y / (y.square().mean() + module.norm.log_eps.exp()).sqrt()


@pytest.mark.parametrize("factor", [1, 2, 4])
def test_whole_utterances_and_windows_are_the_formula(factor: int) -> None:
    module = small(factor)
    framing = Framing(feature_dim=5, feature_step=320, subsampling=factor)
    features = torch.randn(3, 23, 5, generator=torch.Generator().manual_seed(1))
    lengths = torch.tensor([23, 0, 11])
    with torch.no_grad():
        outputs = module(features, lengths)
        for row, length in enumerate(lengths.tolist()):
            for i in range(framing.encoder_frames(length)):
                window = features[row, factor * i : factor * (i + 1)]
                torch.testing.assert_close(outputs[row, i], literal(module, window), rtol=0, atol=1e-6)
        piece = features[:1, : framing.features_seen(2)]
        torch.testing.assert_close(module.windows(piece, torch.tensor([2])), outputs[:1, :2], rtol=0, atol=1e-6)
    assert outputs.shape[1] == framing.encoder_frames(23)


def test_utterances_without_a_frame_give_one_of_padding() -> None:
    assert small(4)(torch.ones(2, 3, 5), torch.tensor([3, 1])).shape == (2, 1, 8)


def test_padding_changes_no_gradient_in_training() -> None:
    """The balancer's statistics leave it out: gradients are those of the utterance without padding."""
    features = torch.randn(1, 12, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    gradients = []
    for padding in (0, 20):
        module = small(4).double().train()
        padded = torch.cat([features, torch.full((1, padding, 5), 3.0, dtype=torch.float64)], dim=1)
        module(padded, torch.tensor([12]))[:, :3].pow(3).sum().backward()
        gradients.append(module.output.weight.value.grad)
    plain = small(4).double()
    plain(features, torch.tensor([12])).pow(3).sum().backward()
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0, atol=1e-9)
    assert not torch.allclose(gradients[0], plain.output.weight.value.grad, rtol=0, atol=1e-4)
