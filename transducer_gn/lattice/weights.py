"""Weights of the arcs that leave lattice points, for rows of prefixes at every frame of their utterance.

The joiner's output at a point is V raw weights. Sums over given token sequences need only two of them, the blank and
the next token: `pair_weights`. Local normalisation needs the log-sum of all V as well: `full_weights`. Both work in
tiles and compute each tile again in backward: memory grows with the points, not with points x J or points x V.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from transducer_gn.common.units import BLANK
from transducer_gn.lattice import tiles
from transducer_gn.lattice.arcs import Rows
from transducer_gn.lattice.joint import LatticeInputs, OutputLayer


def pair_weights(inputs: LatticeInputs, rows: Rows, negligible: float = 0.0) -> tuple[Tensor, Tensor]:
    """The raw weights of the blank and of one token for every row at every frame of its utterance.

    Args:
        inputs: of B utterances; the rows' nodes are indices of its prefixes
        rows: R prefixes with a token each
        negligible: share of the largest gradient that all gradients left out of backward may add up to

    Returns:
        (blank_weights, token_weights), each [R, T]; finite but without meaning beyond an utterance's frames
    """
    work = _Work(_tiles(inputs, rows, tiles.PAIR_POINTS), negligible)
    with tiles.without_autocast(inputs.frames):
        weight, bias = inputs.output.weight, inputs.output.bias
        prefixes = inputs.prefixes.index_select(0, rows.nodes)
        # Gathering the columns outside leaves the sparse gradients of the output layer to autograd.
        columns = weight.index_select(0, rows.tokens)
        blanks, weights = _PairWeights.apply(_readable_frames(inputs), prefixes, columns, weight[BLANK], work)
        return blanks + bias[BLANK], weights + bias.index_select(0, rows.tokens)[:, None]


def full_weights(inputs: LatticeInputs, rows: Rows, negligible: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """As `pair_weights`, and the log-sum over all V weights of each point.

    Returns:
        (blank_weights, token_weights, log_sums), each [R, T]; finite but without meaning beyond an utterance's frames
    """
    work = _Work(_tiles(inputs, rows, tiles.FULL_POINTS), negligible)
    with tiles.without_autocast(inputs.frames):
        prefixes = inputs.prefixes.index_select(0, rows.nodes)
        frames, output = _readable_frames(inputs), inputs.output
        return _FullWeights.apply(frames, prefixes, rows.tokens, output.weight, output.bias, work)


@dataclass(frozen=True)
class _Work:
    """The tiles of the rows, and the share of the largest gradient that may be left out of backward."""

    tiles: list[tiles.Tile]
    negligible: float


def _tiles(inputs: LatticeInputs, rows: Rows, points: dict[str, int]) -> list[tiles.Tile]:
    """Tiles for the device of the inputs."""
    if len(rows.counts) != len(inputs.frames) or sum(rows.counts) != len(rows.nodes):
        raise ValueError(
            f"rows with counts {rows.counts} must be {len(rows.nodes)} in all, of {len(inputs.frames)} utterances"
        )
    device = inputs.frames.device.type
    return tiles.make_tiles(rows, inputs.frame_counts, points[device], tiles.ACROSS_UTTERANCES[device])


def _readable_frames(inputs: LatticeInputs) -> Tensor:
    """[B, T, J]: the frames; those that are padding are 0 where tiles may read them, whatever they were."""
    if not tiles.ACROSS_UTTERANCES[inputs.frames.device.type]:
        return inputs.frames
    return torch.where(inputs.within[..., None], inputs.frames, 0)


class _PairWeights(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, frames: Tensor, prefixes: Tensor, columns: Tensor, blank_column: Tensor, work: _Work
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(frames, prefixes, columns, blank_column)
        ctx.work = work
        weights = frames.new_zeros(2, prefixes.shape[0], frames.shape[1])
        workspace = tiles.Workspace(work.tiles, frames)
        for tile in work.tiles:
            pairs = _column_pairs(tile, columns, blank_column)
            hidden = tiles.tile_hidden(tile, frames, prefixes, workspace)
            weights[:, tile.rows, tile.frames] = torch.bmm(pairs, hidden.transpose(1, 2)).transpose(0, 1)
        return weights[0], weights[1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, blank_grads: Tensor, token_grads: Tensor) -> tuple[Tensor | None, ...]:
        frames, prefixes, columns, blank_column = ctx.saved_tensors
        grads = torch.stack([blank_grads, token_grads], 1)  # [R, 2, T]
        frame_grads, prefix_grads = torch.zeros_like(frames), torch.zeros_like(prefixes)
        pair_grads = columns.new_zeros(columns.shape[0], 2, columns.shape[1])
        active = tiles.narrow_tiles(ctx.work.tiles, grads.abs().sum(1), ctx.work.negligible)
        workspace = tiles.Workspace(active, frames)
        with tiles.without_autocast(frames):
            for tile in active:
                pairs = _column_pairs(tile, columns, blank_column)
                hidden = tiles.tile_hidden(tile, frames, prefixes, workspace)
                grad = grads[tile.rows, :, tile.frames]
                pair_grads[tile.rows] = torch.bmm(grad, hidden)
                hidden_grad = workspace.take("hidden_grad", *hidden.shape)
                torch.bmm(grad.transpose(1, 2), pairs, out=hidden_grad)
                tiles.add_hidden_gradient(tile, hidden_grad, hidden, frame_grads, prefix_grads)
        return frame_grads, prefix_grads, pair_grads[:, 1], pair_grads[:, 0].sum(0), None


def _column_pairs(tile: tiles.Tile, columns: Tensor, blank_column: Tensor) -> Tensor:
    """[rows, 2, J]: the output columns of the blank and of each row's token."""
    tokens = columns[tile.rows]
    return torch.stack([blank_column.expand_as(tokens), tokens], 1)


class _FullWeights(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, frames: Tensor, prefixes: Tensor, tokens: Tensor, weight: Tensor, bias: Tensor, work: _Work
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.work = work
        blanks, weights, log_sums = frames.new_zeros(3, prefixes.shape[0], frames.shape[1]).unbind()
        output, workspace = OutputLayer(weight, bias), tiles.Workspace(work.tiles, frames)
        for tile in work.tiles:
            hidden = tiles.tile_hidden(tile, frames, prefixes, workspace)
            logits = output.logits(hidden, out=workspace.take("logits", *tile.shape, len(bias)))
            blanks[tile.rows, tile.frames] = logits[..., BLANK]
            weights[tile.rows, tile.frames] = logits.gather(2, _token_index(tile, tokens))[..., 0]
            log_sums[tile.rows, tile.frames] = logits.logsumexp(2)
        ctx.save_for_backward(frames, prefixes, tokens, weight, bias, log_sums)
        return blanks, weights, log_sums

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, blank_grads: Tensor, token_grads: Tensor, log_sum_grads: Tensor
    ) -> tuple[Tensor | None, ...]:
        frames, prefixes, tokens, weight, bias, log_sums = ctx.saved_tensors
        output = OutputLayer(weight, bias)
        frame_grads, prefix_grads, sums = torch.zeros_like(frames), torch.zeros_like(prefixes), output.zeros_like()
        magnitude = blank_grads.abs() + token_grads.abs() + log_sum_grads.abs()
        active = tiles.narrow_tiles(ctx.work.tiles, magnitude, ctx.work.negligible)
        workspace = tiles.Workspace(active, frames)
        with tiles.without_autocast(frames):
            for tile in active:
                at = (tile.rows, tile.frames)
                hidden = tiles.tile_hidden(tile, frames, prefixes, workspace)
                # d log_sum / d logits is the softmax; blank and token have one entry each.
                grad = output.logits(hidden, out=workspace.take("logits", *tile.shape, len(bias)))
                grad.sub_(log_sums[at][..., None]).exp_().mul_(log_sum_grads[at][..., None])
                grad[..., BLANK] += blank_grads[at]
                grad.scatter_add_(2, _token_index(tile, tokens), token_grads[at][..., None])
                hidden_grad = workspace.take("hidden_grad", *hidden.shape)
                output.backpropagate(grad, hidden, sums, out=hidden_grad.flatten(0, 1))
                tiles.add_hidden_gradient(tile, hidden_grad, hidden, frame_grads, prefix_grads)
        return frame_grads, prefix_grads, None, sums.weight, sums.bias, None


def _token_index(tile: tiles.Tile, tokens: Tensor) -> Tensor:
    """[rows, frames, 1]: each row's token, for gathering from logits."""
    return tokens[tile.rows, None, None].expand(*tile.shape, 1)
