"""Weights of the arcs that leave lattice points, from projected encoder frames, projected prefixes, the output layer.

The joiner's output at a point is V raw weights. Sums over given token sequences need only two of them, the blank and
the next token: `pair_weights`. Local normalisation needs the log-sum of all V as well: `full_weights`. Both work in
tiles and compute each tile again in backward: memory grows with the points, not with points x J or points x V.
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from transducer_gn.common.units import BLANK
from transducer_gn.lattice import tiles

# Gradients that together make up less than this share of the largest are left out of backward. Occupations along a
# sequence add up to hundreds, so this is below what float32 resolves.
NEGLIGIBLE = 1e-5


def pair_weights(
    frames: Tensor,
    frame_lengths: list[int],
    prefixes: Tensor,
    row_counts: list[int],
    tokens: Tensor,
    weight: Tensor,
    bias: Tensor,
    negligible: float = NEGLIGIBLE,
) -> tuple[Tensor, Tensor]:
    """The raw weights of the blank and of one token for every row at every frame of its utterance.

    Args:
      frames: [B, T, J] projected encoder frames.
      frame_lengths: number of frames of each utterance.
      prefixes: [R, J] projected predictor output of each row's prefix; rows are sorted by utterance.
      row_counts: number of rows of each utterance.
      tokens: [R] the token asked for in each row.
      weight: [V, J] and bias: [V] of the output layer.
      negligible: share of the largest gradient that all gradients left out of backward may add up to.

    Returns:
      (blank_weights, token_weights), each [R, T]; finite but without meaning beyond an utterance's frames.
    """
    _check_rows(frames, frame_lengths, prefixes, row_counts)
    with tiles.without_autocast(frames):
        # Gathering the columns outside leaves the sparse gradients of the output layer to autograd.
        columns = weight.index_select(0, tokens)
        blanks, weights = _PairWeights.apply(
            frames, prefixes, columns, weight[BLANK], frame_lengths, row_counts, negligible
        )
        return blanks + bias[BLANK], weights + bias.index_select(0, tokens)[:, None]


def full_weights(
    frames: Tensor,
    frame_lengths: list[int],
    prefixes: Tensor,
    row_counts: list[int],
    tokens: Tensor,
    weight: Tensor,
    bias: Tensor,
    negligible: float = NEGLIGIBLE,
) -> tuple[Tensor, Tensor, Tensor]:
    """As `pair_weights`, and the log-sum over all V weights of each point.

    Returns:
      (blank_weights, token_weights, log_sums), each [R, T]; finite but without meaning beyond an utterance's frames.
    """
    _check_rows(frames, frame_lengths, prefixes, row_counts)
    with tiles.without_autocast(frames):
        return _FullWeights.apply(frames, prefixes, tokens, weight, bias, frame_lengths, row_counts, negligible)


class _PairWeights(torch.autograd.Function):
    @staticmethod
    def forward(ctx, frames, prefixes, columns, blank_column, frame_lengths, row_counts, negligible):
        ctx.save_for_backward(frames, prefixes, columns, blank_column)
        ctx.tiles = tiles.make_tiles(row_counts, frame_lengths, tiles.PAIR_POINTS[frames.device.type])
        ctx.negligible = negligible
        weights = frames.new_zeros(2, prefixes.shape[0], frames.shape[1])
        workspace = tiles.Workspace(ctx.tiles, frames)
        for tile in ctx.tiles:
            pairs = _column_pairs(tile, columns, blank_column)
            hidden = tiles.hidden(tile, frames, prefixes, workspace)
            weights[:, tile.rows, tile.frames] = torch.bmm(pairs, hidden.transpose(1, 2)).transpose(0, 1)
        return weights[0], weights[1]

    @staticmethod
    @once_differentiable
    def backward(ctx, blank_grads, token_grads):
        frames, prefixes, columns, blank_column = ctx.saved_tensors
        grads = torch.stack([blank_grads, token_grads], 1)  # [R, 2, T]
        frame_grads, prefix_grads = torch.zeros_like(frames), torch.zeros_like(prefixes)
        pair_grads = columns.new_zeros(columns.shape[0], 2, columns.shape[1])
        active = tiles.narrow_tiles(ctx.tiles, grads.abs().sum(1), ctx.negligible)
        workspace = tiles.Workspace(active, frames)
        with tiles.without_autocast(frames):
            for tile in active:
                pairs = _column_pairs(tile, columns, blank_column)
                hidden = tiles.hidden(tile, frames, prefixes, workspace)
                grad = grads[tile.rows, :, tile.frames]
                pair_grads[tile.rows] = torch.bmm(grad, hidden)
                hidden_grad = workspace.take("hidden_grad", *hidden.shape)
                torch.bmm(grad.transpose(1, 2), pairs, out=hidden_grad)
                tiles.add_hidden_gradient(tile, hidden_grad, hidden, frame_grads, prefix_grads)
        return frame_grads, prefix_grads, pair_grads[:, 1], pair_grads[:, 0].sum(0), None, None, None


def _column_pairs(tile: tiles.Tile, columns: Tensor, blank_column: Tensor) -> Tensor:
    """[rows, 2, J]: the output columns of the blank and of each row's token."""
    tokens = columns[tile.rows]
    return torch.stack([blank_column.expand_as(tokens), tokens], 1)


class _FullWeights(torch.autograd.Function):
    @staticmethod
    def forward(ctx, frames, prefixes, tokens, weight, bias, frame_lengths, row_counts, negligible):
        ctx.tiles = tiles.make_tiles(row_counts, frame_lengths, tiles.FULL_POINTS[frames.device.type])
        ctx.negligible = negligible
        blanks, weights, log_sums = frames.new_zeros(3, prefixes.shape[0], frames.shape[1]).unbind()
        workspace = tiles.Workspace(ctx.tiles, frames)
        for tile in ctx.tiles:
            hidden = tiles.hidden(tile, frames, prefixes, workspace)
            logits = _logits(hidden, weight, bias, workspace)
            blanks[tile.rows, tile.frames] = logits[..., BLANK]
            weights[tile.rows, tile.frames] = logits.gather(2, _token_index(tile, tokens))[..., 0]
            log_sums[tile.rows, tile.frames] = logits.logsumexp(2)
        ctx.save_for_backward(frames, prefixes, tokens, weight, bias, log_sums)
        return blanks, weights, log_sums

    @staticmethod
    @once_differentiable
    def backward(ctx, blank_grads, token_grads, log_sum_grads):
        frames, prefixes, tokens, weight, bias, log_sums = ctx.saved_tensors
        frame_grads, prefix_grads = torch.zeros_like(frames), torch.zeros_like(prefixes)
        weight_grad, bias_grad = torch.zeros_like(weight), torch.zeros_like(bias)
        magnitude = blank_grads.abs() + token_grads.abs() + log_sum_grads.abs()
        active = tiles.narrow_tiles(ctx.tiles, magnitude, ctx.negligible)
        workspace = tiles.Workspace(active, frames)
        with tiles.without_autocast(frames):
            for tile in active:
                at = (tile.rows, tile.frames)
                hidden = tiles.hidden(tile, frames, prefixes, workspace)
                # d log_sum / d logits is the softmax; blank and token have one entry each.
                grad = _logits(hidden, weight, bias, workspace)
                grad.sub_(log_sums[at][..., None]).exp_().mul_(log_sum_grads[at][..., None])
                grad[..., BLANK] += blank_grads[at]
                grad.scatter_add_(2, _token_index(tile, tokens), token_grads[at][..., None])
                hidden_grad = add_output_gradient(grad, hidden, weight, weight_grad, bias_grad, workspace)
                tiles.add_hidden_gradient(tile, hidden_grad, hidden, frame_grads, prefix_grads)
        return frame_grads, prefix_grads, None, weight_grad, bias_grad, None, None, None


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor, workspace: tiles.Workspace) -> Tensor:
    """All V raw weights at a tile's points: [rows, frames, J] to [rows, frames, V], in the workspace."""
    result = workspace.take("logits", *hidden.shape[:2], weight.shape[0])
    torch.addmm(bias, hidden.flatten(0, 1), weight.t(), out=result.flatten(0, 1))
    return result


def _token_index(tile: tiles.Tile, tokens: Tensor) -> Tensor:
    """[rows, frames, 1]: each row's token, for gathering from logits."""
    return tokens[tile.rows, None, None].expand(*tile.shape, 1)


def add_output_gradient(
    grad: Tensor, hidden: Tensor, weight: Tensor, weight_grad: Tensor, bias_grad: Tensor, workspace: tiles.Workspace
) -> Tensor:
    """Backpropagate through the output layer.

    Args:
      grad: [rows, frames, V] of the logits; hidden: [rows, frames, J].
      weight: [V, J]. weight_grad: [V, J] and bias_grad: [V] are added to.

    Returns:
      [rows, frames, J] gradient of the hidden vectors, in the workspace.
    """
    flat = grad.flatten(0, 1)
    weight_grad.addmm_(flat.t(), hidden.flatten(0, 1))
    bias_grad += flat.sum(0)
    hidden_grad = workspace.take("hidden_grad", *hidden.shape)
    torch.mm(flat, weight, out=hidden_grad.flatten(0, 1))
    return hidden_grad


def _check_rows(frames: Tensor, frame_lengths: list[int], prefixes: Tensor, row_counts: list[int]) -> None:
    """Raise ValueError naming the argument that does not fit the others."""
    utterances, longest, width = frames.shape
    if len(frame_lengths) != utterances or max(frame_lengths, default=0) > longest:
        raise ValueError(f"frame_lengths {frame_lengths} do not fit frames of shape {list(frames.shape)}")
    if len(row_counts) != utterances or sum(row_counts) != prefixes.shape[0] or prefixes.shape[1] != width:
        raise ValueError(
            f"prefixes of shape {list(prefixes.shape)} with row_counts {row_counts} do not fit frames of shape "
            f"{list(frames.shape)}"
        )
