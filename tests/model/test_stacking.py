"""Invariant: output i is a function of features factor * i to factor * i + factor - 1 and of nothing else, whether an
utterance is encoded as a whole, beside others, or in pieces."""

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
        piece = features[:1, : framing.features_of(2)]
        torch.testing.assert_close(module.windows(piece, torch.tensor([2])), outputs[:1, :2], rtol=0, atol=1e-6)
    assert outputs.shape[1] == framing.encoder_frames(23)


def test_utterances_without_a_frame_give_one_of_padding() -> None:
    assert small(4)(torch.ones(2, 3, 5), torch.tensor([3, 1])).shape == (2, 1, 8)
