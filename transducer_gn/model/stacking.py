"""Subsampling for features that a pretrained encoder has made: some are put side by side, and a linear layer follows.

Output i sees feature vectors factor * i to factor * i + factor - 1, so that a chunk's outputs need nothing beyond its
own features. What is left over at the end of an utterance is dropped: T vectors give T // factor outputs.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from transducer_gn.model.activation import Balancer, BasicNorm, Limits
from transducer_gn.model.chunk import valid_frames
from transducer_gn.model.scaled import ScaledLinear


class Stacking(nn.Module):
    """`factor` feature vectors of `feature_dim` numbers become one output of `dim`."""

    def __init__(self, feature_dim: int, dim: int, factor: int) -> None:
        super().__init__()
        self.factor = factor
        self.output = ScaledLinear(factor * feature_dim, dim)
        self.norm = BasicNorm()
        self.output_balancer = Balancer(Limits(min_positive=0.45, max_positive=0.55))

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Outputs [B, T, D] of whole utterances; T is that of the longest, but at least 1.

        Args:
            features: [B, T', F] feature vectors
            lengths: [B] number of them in each utterance
        """
        frames = max(1, features.shape[1] // self.factor)
        features = features.masked_fill(~valid_frames(lengths, features.shape[1]).unsqueeze(2), 0.0)
        # A negative number of frames to add drops those that no output sees.
        features = functional.pad(features, (0, 0, 0, self.factor * frames - features.shape[1]))
        return self.windows(features, torch.div(lengths, self.factor, rounding_mode="floor"))

    def windows(self, features: Tensor, outputs: Tensor) -> Tensor:
        """Outputs [B, n, D] of consecutive windows.

        Args:
            features: [B, factor * n, F] feature vectors
            outputs: [B] how many of the n are not padding
        """
        x = features.unflatten(1, (-1, self.factor)).flatten(2)
        x = self.norm(self.output(x))
        return self.output_balancer(x, valid_frames(outputs, x.shape[1]))
