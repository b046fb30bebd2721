"""Self-attention with relative positions.

The score of query i for key j is (q_i + u) k_j + (q_i + v) p_(i-j), where p is a projection of sines and cosines of
the distance i - j, and u and v are learnt. Heads come first in every tensor here, so that the second product is one
matrix multiplication per head for the whole batch.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from transducer_gn.model.scaled import ScaledLinear, ScaledTensor


def sinusoids(distances: Tensor, dim: int) -> Tensor:
    """Sines and cosines [R, dim] of `distances` [R] at wavelengths from 2 pi to 20000 pi."""
    rates = torch.exp(torch.arange(0, dim, 2, device=distances.device) * (-math.log(10000.0) / dim))
    angles = distances.unsqueeze(1) * rates
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)


def relative_positions(queries: int, keys: int, dim: int, device: torch.device) -> Tensor:
    """The sinusoids [keys + queries - 1, dim] of all distances from queries to keys, the largest first.

    Queries are the last `queries` of the `keys` frames.
    """
    return sinusoids(torch.arange(keys - 1, -queries, -1, device=device, dtype=torch.float32), dim)


def by_key(scores: Tensor) -> Tensor:
    """From `scores` [..., Q, K + Q - 1] by distance, the largest first, to [..., Q, K] by key.

    Row i begins Q - 1 - i columns later than the last row. Dropping the first Q - 1 elements and cutting the rest
    into rows that are one shorter lines the rows up, without a copy.
    """
    queries, distances = scores.shape[-2:]
    if queries == 1:
        return scores
    flat = scores.flatten(-2)[..., queries - 1 : queries - 1 + queries * (distances - 1)]
    return flat.unflatten(-1, (queries, distances - 1))[..., : distances - queries + 1]


class RelativeAttention(nn.Module):
    """Multi-head attention of width `attention_dim` within a stream of width `dim`."""

    def __init__(self, dim: int, attention_dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.head_dim = attention_dim // heads
        self.input = ScaledLinear(dim, 3 * attention_dim)
        self.position = ScaledLinear(dim, attention_dim, bias=False)
        self.content_bias = ScaledTensor(attention_dim, rms=0.01)
        self.position_bias = ScaledTensor(attention_dim, rms=0.01)
        self.output = ScaledLinear(attention_dim, dim, gain=0.25)

    def project_positions(self, positions: Tensor) -> Tensor:
        """From sinusoids [R, dim] to what queries are multiplied with [H, R, A / H]."""
        return self.position(positions).unflatten(1, (self.heads, self.head_dim)).transpose(0, 1)

    def forward(self, x: Tensor, positions: Tensor, visible: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from `x` [B, Q, D] to M frames of the past and to itself.

        `memory` [B, M, 2A] are the keys and values of the past, `positions` [H, M + 2Q - 1, A / H] comes from
        `project_positions`, and `visible` [B, Q or 1, M + Q] is true where a query may see a key. Gives outputs
        [B, Q, D] and the keys and values of all frames [B, M + Q, 2A].
        """
        size = self.heads * self.head_dim
        queries, memory_of_x = self.input(x).split([size, 2 * size], dim=2)
        memory = torch.cat([memory, memory_of_x], dim=1) if memory.shape[1] else memory_of_x
        keys, values = memory.split(size, dim=2)
        queries = queries * self.head_dim**-0.5
        attended = attend(
            self._by_head(queries + self.content_bias()),
            self._by_head(queries + self.position_bias()),
            self._by_head(keys),
            self._by_head(values),
            positions,
            visible,
        )
        return self.output(attended.permute(1, 2, 0, 3).flatten(2)), memory

    def _by_head(self, x: Tensor) -> Tensor:
        """From [B, T, A] to [H, B, T, A / H]."""
        return x.unflatten(2, (self.heads, self.head_dim)).permute(2, 0, 1, 3)


def attend(
    content_queries: Tensor, position_queries: Tensor, keys: Tensor, values: Tensor, positions: Tensor, visible: Tensor
) -> Tensor:
    """Softmax of the scores times the values.

    Queries are [H, B, Q, E], `keys` and `values` [H, B, K, E], `positions` [H, K + Q - 1, E], `visible`
    [B, Q or 1, K]; gives [H, B, Q, E]. A query that sees nothing gets some finite vector, and no NaN.
    """
    heads, batch, queries, _ = position_queries.shape
    by_distance = torch.bmm(position_queries.flatten(1, 2), positions.transpose(1, 2))
    scores = by_key(by_distance.view(heads, batch, queries, -1))
    hidden = torch.finfo(scores.dtype).min
    if torch.is_grad_enabled():
        # The fused kernels give no gradient for the part of the scores that comes from positions.
        scores = torch.baddbmm(scores.flatten(0, 1), content_queries.flatten(0, 1), keys.flatten(0, 1).transpose(1, 2))
        scores = scores.view(heads, batch, queries, -1).masked_fill_(~visible, hidden)
        weights = scores.softmax(dim=-1).to(values.dtype)
        return torch.matmul(weights, values)
    scores = scores.masked_fill(~visible, hidden)
    return functional.scaled_dot_product_attention(content_queries, keys, values, attn_mask=scores, scale=1.0)
