"""One layer of Moonshine's encoder: attention and a feed-forward module, each on normalised inputs and added to them.

Positions enter as rotations: of each head's queries and keys, pairs of neighbouring numbers are turned by an angle
that grows with the frame's number, so that a product of query and key depends on the distance of the two frames.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

# Added to variances before roots are taken.
EPSILON = 1e-5
LONGEST_WAVE = 10000.0


class Rotation(NamedTuple):
    """Cosine and sine of each frame's angles.

    Attributes:
        cosine: [B or 1, T, R / 2]
        sine: [B or 1, T, R / 2]
    """

    cosine: Tensor
    sine: Tensor


class Stripe(NamedTuple):
    """Neighbouring frames that attend together, to themselves and to the lasting ones of stripes before.

    What cannot be seen by any of them is not computed. So much of a sequence is behind or a copy that serves its own
    chunk alone that stripes are half of the work, or less.

    Attributes:
        lasting: [K] which of the stripe's frames later ones may see
        first: number of the first stripe whose lasting frames are seen
        visible: [B, 1, T, M] true where the row's frame may see the column's, of the last M frames that are seen: those
            before them are seen by all
    """

    lasting: Tensor
    first: int
    visible: Tensor


def rotations(numbers: Tensor, rotated: int, dtype: torch.dtype) -> Rotation:
    """Rotations of frames.

    Args:
        numbers: [B or 1, T] numbers of the frames
        rotated: how many numbers of a head are rotated, R
        dtype: type of the result
    """
    # 64-bit angles, since after an hour the frames' numbers leave 32-bit ones no digits for the angle.
    exponents = torch.arange(0, rotated, 2, device=numbers.device, dtype=torch.float64) / rotated
    angles = numbers.unsqueeze(2) * LONGEST_WAVE**-exponents
    return Rotation(angles.cos().to(dtype), angles.sin().to(dtype))


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Turn the first R numbers of queries or keys `x` [B, H, T, A] by their frames' angles."""
    cosine, sine = (part.unsqueeze(1) for part in rotation)
    rotated = 2 * cosine.shape[3]
    even, odd = x[..., 0:rotated:2], x[..., 1:rotated:2]
    turned = torch.stack([even * cosine - odd * sine, odd * cosine + even * sine], dim=-1)
    return torch.cat([turned.flatten(-2), x[..., rotated:]], dim=-1)


def attend(query: Tensor, keys: Tensor, values: Tensor, visible: Tensor) -> Tensor:
    """Mean [B, H, T, A] of the values that each query sees, by how well their keys fit.

    Args:
        query: [B, H, T, A]
        keys: [B, H, S, A]
        values: [B, H, S, A]
        visible: [B, 1, T, M] true where the row's frame may see the column's, of the last M of S; the others are seen
    """
    if query.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        half = torch.get_autocast_dtype("cpu")
        return attend_by_products(query.to(half), keys.to(half), values.to(half), visible)
    visible = functional.pad(visible, (keys.shape[2] - visible.shape[3], 0), value=True)
    return functional.scaled_dot_product_attention(query, keys, values, attn_mask=visible)


def attend_by_products(query: Tensor, keys: Tensor, values: Tensor, visible: Tensor) -> Tensor:
    """The same as plain products: in half precision half as long as the fused operation of processors takes."""
    unseen = torch.zeros_like(visible, dtype=query.dtype).masked_fill_(~visible, -torch.inf)
    with torch.autocast("cpu", enabled=False):
        scores = (query * query.shape[3] ** -0.5) @ keys.transpose(2, 3)
        # In place and past autograd, for which adding a constant is nothing: these tensors are the largest of all.
        scores.detach()[..., keys.shape[2] - visible.shape[3] :].add_(unseen)
        return scores.softmax(3) @ values


def attend_in_stripes(query: Tensor, keys: Tensor, values: Tensor, stripes: Sequence[Stripe]) -> Tensor:
    """The same for all frames of a sequence [B, H, L, A], which the stripes divide among them."""
    sizes = [stripe.visible.shape[2] for stripe in stripes]
    known = torch.cat([keys, values], dim=3).split(sizes, dim=2)
    lasting = [part.index_select(2, stripe.lasting) for part, stripe in zip(known, stripes, strict=True)]
    results = []
    for number, (part, stripe) in enumerate(zip(query.split(sizes, dim=2), stripes, strict=True)):
        seen = torch.cat([*lasting[stripe.first : number], known[number]], dim=2)
        seen_keys, seen_values = seen.chunk(2, dim=3)
        results.append(attend(part, seen_keys, seen_values, stripe.visible))
    return torch.cat(results, dim=2)


class MoonshineAttention(nn.Module):
    """Attention with rotated queries and keys; no part of it has a bias."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(dim, dim, bias=False)
        self.key = nn.Linear(dim, dim, bias=False)
        self.value = nn.Linear(dim, dim, bias=False)
        self.output = nn.Linear(dim, dim, bias=False)

    def forward(
        self, x: Tensor, rotation: Rotation, visible: Tensor | Sequence[Stripe], memory: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Attend.

        Args:
            x: [B, T, D] frames
            rotation: their rotations
            visible: [B, 1, T, M + T] true where the row's frame may see the column's, or the stripes of all frames
            memory: [B, H, M, 2 A] rotated keys and values of frames before; None for none

        Returns:
            [B, T, D] results, and [B, H, M + T, 2 A] rotated keys and values of all frames
        """
        query, key, value = (
            part(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        query = rotate(query, rotation)
        known = torch.cat([rotate(key, rotation), value], dim=3)
        if memory is not None:
            known = torch.cat([memory, known], dim=2)
        keys, values = known.chunk(2, dim=3)
        if isinstance(visible, Tensor):
            result = attend(query, keys, values, visible)
        else:
            result = attend_in_stripes(query, keys, values, visible)
        return self.output(result.transpose(1, 2).flatten(2)), known


class MoonshineLayer(nn.Module):
    """One layer."""

    def __init__(self, dim: int, heads: int, feedforward_dim: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(dim, eps=EPSILON, bias=False)
        self.attention = MoonshineAttention(dim, heads)
        self.feedforward_norm = nn.LayerNorm(dim, eps=EPSILON, bias=False)
        self.feedforward = nn.Sequential(nn.Linear(dim, feedforward_dim), nn.GELU(), nn.Linear(feedforward_dim, dim))

    def forward(
        self, x: Tensor, rotation: Rotation, visible: Tensor | Sequence[Stripe], memory: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Arguments and results are those of the attention."""
        attended, known = self.attention(self.attention_norm(x), rotation, visible, memory)
        x = x + attended
        return x + self.feedforward(self.feedforward_norm(x)), known
