"""The encoder: subsampling and a stack of Conformer layers, over whole utterances or chunk by chunk."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from transducer_gn.common.framing import FILTER_BANKS, Framing
from transducer_gn.config import EncoderConfig
from transducer_gn.model.activation import dropout
from transducer_gn.model.attention import relative_positions
from transducer_gn.model.chunk import Chunk, valid_frames, visible_frames
from transducer_gn.model.conformer import ConformerLayer
from transducer_gn.model.stacking import Stacking
from transducer_gn.model.subsampling import Subsampling

# The share of a layer's output that remains when training drops the layer, and with which warm-up begins.
LEAST_SHARE = 0.1


class Encoder(nn.Module):
    """From a front end's feature vectors to frames, fewer of them: those of filter banks at 25 Hz from 100 Hz.

    In training, layers are faded in during warm-up and dropped now and then: a layer's result is a mixture of its
    output and its input. Draws for this and for dropout come from torch's global generator.
    """

    def __init__(self, config: EncoderConfig, framing: Framing = FILTER_BANKS) -> None:
        super().__init__()
        self.config = config
        self.framing = framing
        # Frames that share feature vectors are made by convolutions.
        self.subsampling: Subsampling | Stacking = (
            Subsampling(framing.feature_dim, config.dim)
            if framing.overlap
            else Stacking(framing.feature_dim, config.dim, framing.subsampling)
        )
        self.layers = nn.ModuleList(ConformerLayer(config) for _ in range(config.layers))

    @property
    def conformer_layers(self) -> Sequence[ConformerLayer]:
        """The layers by their type, which a ModuleList does not tell."""
        return cast(Sequence[ConformerLayer], self.layers)

    def forward(self, features: Tensor, lengths: Tensor, chunk: Chunk, warmup: float = 1.0) -> tuple[Tensor, Tensor]:
        """Encode whole utterances, each frame seeing what `chunk` lets it see.

        From `features` [B, T', F] of `lengths` [B] feature frames to frames [B, T, D], zero at padding, and their
        numbers [B]. In training, `warmup` is the share of warm-up that is done.
        """
        lengths = lengths.to(features.device)
        frame_lengths = self.framing.encoder_lengths(lengths)
        x = self.subsampling(features, lengths)
        frames = x.shape[1]
        valid = valid_frames(frame_lengths, frames)
        visible = visible_frames(chunk, frames, x.device) & valid.unsqueeze(1)
        positions = relative_positions(frames, frames, self.config.dim, x.device).to(x.dtype)
        positions = dropout(positions, self.config.dropout, self.training)
        for layer, share in zip(self.conformer_layers, self._shares(warmup), strict=True):
            projected = layer.attention.project_positions(positions)
            output, _ = layer(x, projected, visible, valid, layer.empty_cache(x))
            x = output if share == 1 else torch.lerp(x, output, share)
        return x.masked_fill(~valid.unsqueeze(2), 0.0), frame_lengths

    def _shares(self, warmup: float) -> list[float]:
        """The share of its output in each layer's result."""
        if not self.training:
            return [1.0] * len(self.layers)
        faded_in = min(LEAST_SHARE + warmup, 1.0)
        draws = torch.rand(len(self.layers)).tolist()
        return [LEAST_SHARE if draw < self.config.layer_drop else faded_in for draw in draws]
