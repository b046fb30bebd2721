"""Convolutional subsampling: from filter banks at 100 Hz to vectors at 25 Hz.

Output i sees feature frames 4i - 1 to 4i + 7. Frame -1 and the frame after the last are zeros: these are the only
ones outside an utterance that anything sees, and streams add the same. T feature frames give (T - 3) // 4 outputs.
"""

from torch import Tensor, nn
from torch.nn import functional

from transducer_gn.common.framing import FILTER_BANKS
from transducer_gn.model.activation import Balancer, BasicNorm, Limits, double_swish
from transducer_gn.model.chunk import valid_frames
from transducer_gn.model.scaled import ScaledConv2d, ScaledLinear

CHANNELS = (8, 32, 128)
# n outputs see step * n + extra frames of each convolution's result.
SEEN = ((4, 3), (2, 1), (1, 0))


class Subsampling(nn.Module):
    """Three convolutions over time and frequency, the last two with stride 2, then a linear layer."""

    def __init__(self, feature_dim: int, dim: int) -> None:
        super().__init__()
        first, second, third = CHANNELS
        self.convolutions = nn.ModuleList(
            [
                ScaledConv2d(1, first, kernel=3, stride=1, padding=1),
                ScaledConv2d(first, second, kernel=3, stride=2, padding=0),
                ScaledConv2d(second, third, kernel=3, stride=2, padding=0),
            ]
        )
        self.balancers = nn.ModuleList(Balancer(Limits()) for _ in CHANNELS)
        bands = ((feature_dim - 1) // 2 - 1) // 2
        self.output = ScaledLinear(third * bands, dim)
        self.norm = BasicNorm()
        self.output_balancer = Balancer(Limits(min_positive=0.45, max_positive=0.55))

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Outputs [B, T, D] of whole utterances `features` [B, T', F] of `lengths` [B] feature frames.

        T is that of the longest utterance, but at least 1.
        """
        outputs = FILTER_BANKS.encoder_lengths(lengths)
        frames = max(1, FILTER_BANKS.encoder_frames(features.shape[1]))
        features = features.masked_fill(~valid_frames(lengths, features.shape[1]).unsqueeze(2), 0.0)
        missing = FILTER_BANKS.features_seen(frames) - 1 - features.shape[1]
        # A negative `missing` drops frames at the end that no output sees.
        return self.windows(functional.pad(features, (0, 0, 1, missing)), outputs)

    def windows(self, features: Tensor, outputs: Tensor) -> Tensor:
        """Outputs [B, n, D] of `features` [B, 4n + 5, F], which begin one frame before the first output.

        `outputs` [B] is how many of the n are not padding.
        """
        x = features.unsqueeze(3)
        for convolution, balancer, (step, extra) in zip(self.convolutions, self.balancers, SEEN, strict=True):
            x = convolution(x)
            seen = valid_frames(step * outputs + extra, x.shape[1])
            x = double_swish(balancer(x, seen.unsqueeze(2)))
        x = self.norm(self.output(x.flatten(2)))
        return self.output_balancer(x, valid_frames(outputs, x.shape[1]))
