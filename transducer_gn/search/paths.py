"""The way of each hypothesis through the prefix tree, from the root or a node that all of them have passed.

`paths` [B, K, P, 3] holds, at position d, the d-th prefix of each hypothesis: its node, its last token and the frame
at which that was emitted. Position 0 is the node that all paths start from. Beyond a hypothesis's length is -1.
"""

import torch
from torch import Tensor

from transducer_gn.search.prefix_pool import NO_NODE, ROOT

NODE, TOKEN, TIME = 0, 1, 2
EMPTY = -1


def start_paths(batch: int, beam: int, device: torch.device) -> Tensor:
    """Paths [batch, beam, 1, 3] that are at the root."""
    paths = torch.full((batch, beam, 1, 3), EMPTY, dtype=torch.long, device=device)
    paths[..., NODE] = ROOT
    return paths


def find_extensions(paths: Tensor, parents: Tensor, lengths: Tensor, tokens: Tensor) -> Tensor:
    """Nodes [B, M] of extended prefixes that lie on one of the paths; -1 if they are on none.

    Args:
      paths: [B, K, P, 3]
      parents: [B, M] nodes of the prefixes to extend.
      lengths: [B, M] their lengths, counted from position 0.
      tokens: [B, M] tokens to extend them by.
    """
    longest = paths.shape[2] - 1
    shape = (*paths.shape[:2], lengths.shape[1])
    here = lengths.clamp(max=longest)[:, None].expand(shape)
    there = (lengths + 1).clamp(max=longest)[:, None].expand(shape)
    nodes, path_tokens = paths[..., NODE], paths[..., TOKEN]
    on_path = (nodes.gather(2, here) == parents[:, None]) & (path_tokens.gather(2, there) == tokens[:, None])
    # A prefix as long as the longest path has no extension on it, whatever the clamped positions say.
    on_path &= (lengths < longest)[:, None]
    return nodes.gather(2, there).where(on_path, NO_NODE).amax(1)


def extend_paths(
    paths: Tensor, lengths: Tensor, longest: int, origins: Tensor, emitted: Tensor, frames: Tensor
) -> Tensor:
    """The paths [B, K, P', 3] of hypotheses that continue others.

    Args:
      paths: [B, K, P, 3]
      lengths: [B, K] lengths of these paths.
      longest: none of `lengths` is larger.
      origins: [B, K] which path each hypothesis continues.
      emitted: [B, K, S, 2] nodes and tokens that it adds, -1 after the last.
      frames: [B] frame of the addition.
    """
    paths = paths[:, :, : longest + 1]
    steps = emitted.shape[2]
    continued = paths.gather(1, origins[:, :, None, None].expand(-1, -1, *paths.shape[2:]))
    continued = torch.nn.functional.pad(continued, (0, 0, 0, longest + 1 + steps - paths.shape[2]), value=EMPTY)
    times = torch.where(emitted[..., :1] == EMPTY, EMPTY, frames[:, None, None, None])
    additions = torch.cat([emitted, times], dim=-1)
    positions = lengths.gather(1, origins)[:, :, None] + torch.arange(1, steps + 1, device=paths.device)
    return continued.scatter(2, positions[..., None].expand_as(additions), additions)
