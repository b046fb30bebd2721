"""The joiner: from an encoder frame and a predictor output to one unnormalised weight per token."""

import math

import torch
from torch import Tensor, nn

from transducer_gn.lattice.joint import LatticeInputs, OutputLayer, joint_logits
from transducer_gn.model.precision import full_precision
from transducer_gn.model.scaled import ScaledLinear


class Joiner(nn.Module):
    """logits = W tanh(A encoder + B predictor) + b.

    Its parts are public so that callers project each frame and each prefix once, and evaluate only the rows of the
    output layer that they need. Everything runs and comes out in the precision of its parameters, also under
    autocast: sums over lattices do not survive half precision.

    With a `blank_prior`, constant biases make weights start out normalised, blanks with this probability. Otherwise a
    model first learns blanks by making their weights large, and then, under the regulariser, all weights small again.
    """

    bias_offsets: Tensor

    def __init__(
        self, encoder_dim: int, predictor_dim: int, dim: int, vocab_size: int, blank_prior: float | None = None
    ) -> None:
        super().__init__()
        self.encoder_projection = ScaledLinear(encoder_dim, dim)
        # One bias is enough for the sum of the two projections.
        self.predictor_projection = ScaledLinear(predictor_dim, dim, bias=False)
        self.output = ScaledLinear(dim, vocab_size)
        offsets = torch.zeros(vocab_size)
        if blank_prior is not None:
            offsets.fill_(math.log((1 - blank_prior) / (vocab_size - 1)))
            offsets[0] = math.log(blank_prior)  # the blank is token 0
        self.register_buffer("bias_offsets", offsets, persistent=False)

    @full_precision
    def project_encoder(self, encoder_out: Tensor) -> Tensor:
        """From encoder frames [..., D] to the joiner's width [..., J]."""
        return self.encoder_projection(encoder_out.to(self.encoder_projection.weight.value.dtype))

    @full_precision
    def project_predictor(self, output: Tensor) -> Tensor:
        """From predictor outputs [..., D] to the joiner's width [..., J]."""
        return self.predictor_projection(output.to(self.predictor_projection.weight.value.dtype))

    @property
    def output_weight(self) -> Tensor:
        """The weights [V, J] of the output layer as they act."""
        return self.output.weight()

    @property
    def output_bias(self) -> Tensor:
        """The biases [V] of the output layer as they act."""
        assert self.output.bias is not None  # it is made with one
        return self.output.bias() + self.bias_offsets

    @property
    def output_layer(self) -> OutputLayer:
        """The output layer as it acts."""
        return OutputLayer(self.output_weight, self.output_bias)

    def lattice_inputs(self, encoder_out: Tensor, frame_lengths: Tensor, predictor_out: Tensor) -> LatticeInputs:
        """What lattices need of this joiner: each frame and each prefix projected once.

        Args:
            encoder_out: [B, T, D] encoder frames
            frame_lengths: [B] number of frames of each utterance
            predictor_out: [P, D] predictor outputs of the prefixes, or states, of the lattices
        """
        frames = self.project_encoder(encoder_out)
        return LatticeInputs(frames, frame_lengths, self.project_predictor(predictor_out), self.output_layer)

    @full_precision
    def forward(self, projected_encoder: Tensor, projected_predictor: Tensor) -> Tensor:
        """Logits [..., V] from projections [..., J] that broadcast against each other."""
        return joint_logits(projected_encoder, projected_predictor, self.output_layer)
