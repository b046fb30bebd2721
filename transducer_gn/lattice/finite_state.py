"""Exact normalisation for finite-state predictors: log Z(x) over all label sequences, and what an N-best list misses.

When the predictor sees only the last c tokens, all prefixes that end in the same c tokens share their weights, and the
sum over every label sequence is a forward recursion over V^c states. With at most S tokens per frame it is finite for
any weights. This is how globally normalised models are trained without an N-best list, for small V and c.

A *state* is the last c tokens as digits of a number in base V, the newest last; blanks (0) stand before the start.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from transducer_gn.common.errors import NotFiniteError
from transducer_gn.common.units import BLANK
from transducer_gn.lattice.joint import LatticeInputs, joint_logits
from transducer_gn.lattice.prefix_tree import distinct_sequences

# A log-weight that stands for minus infinity.
UNREACHABLE = -1e30

# Hidden vectors that exist at a time.
POINTS = {"cpu": 1 << 13, "cuda": 1 << 17}


def state_logits(inputs: LatticeInputs) -> Tensor:
    """Raw weights of every label in every state at every frame.

    Only these are kept for backward; hidden vectors are computed again, a few frames at a time.

    Args:
        inputs: with a prefix for each of the V**c states

    Returns:
        [B, T, V**c, V] raw weights
    """
    frames, states = inputs.frames, inputs.prefixes
    height = max(1, POINTS[frames.device.type] // len(states))
    parts = [
        checkpoint(joint_logits, part[:, None], states, inputs.output, use_reentrant=False)
        for part in frames.flatten(0, 1).split(height)
    ]
    return torch.cat(parts).view(*frames.shape[:2], len(states), -1)


def log_normaliser(logits: Tensor, frame_lengths: Tensor, max_tokens_per_frame: int) -> Tensor:
    """Exact log Z: the log-sum over all label sequences with at most so many tokens at each frame.

    Args:
        logits: [B, T, V**c, V] raw weights of leaving each state by each label at each frame; any real, or -inf
        frame_lengths: [B]
        max_tokens_per_frame: S; every frame ends with a blank, which does not count

    Returns:
        [B] in the dtype of the logits, differentiable; -inf (with zero gradient) where every path is blocked
    """
    context_size(logits)
    _check_lengths("frame_lengths", frame_lengths, logits.shape[1], (logits.shape[0],))
    if max_tokens_per_frame < 0:
        raise ValueError(f"max_tokens_per_frame is {max_tokens_per_frame}; it must be 0 or more")
    if logits.numel() and not bool(logits.detach().amax() < math.inf):
        raise NotFiniteError("logits holds NaN or +inf")
    return _LogNormaliser.apply(logits, frame_lengths.to(logits.device), max_tokens_per_frame)


def context_size(logits: Tensor) -> int:
    """c, from the shape [..., V**c, V]; ValueError if it is no such shape."""
    states, vocabulary = logits.shape[-2:]
    if logits.dim() != 4 or vocabulary < 2:
        raise ValueError(f"logits must be [B, T, V**c, V] with V at least 2; it has shape {list(logits.shape)}")
    context = 0
    while vocabulary**context < states:
        context += 1
    if vocabulary**context != states:
        raise ValueError(f"logits has {states} states, which is no power of its {vocabulary} labels")
    return context


class _LogNormaliser(torch.autograd.Function):
    """Saves the sums at the start of each frame; within a frame all is computed again in backward."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, frame_lengths: Tensor, max_tokens_per_frame: int) -> Tensor:
        utterances, frames, states, _ = logits.shape
        sums = torch.full((frames + 1, utterances, states), -math.inf, dtype=torch.float64, device=logits.device)
        sums[0, :, 0] = 0
        for t in range(frames):
            rounds = _token_rounds(sums[t], _without_blanks(logits[:, t]), max_tokens_per_frame)
            done = (rounds + logits[:, t, :, BLANK]).logsumexp(0)
            sums[t + 1] = torch.where((t < frame_lengths)[:, None], done, sums[t])
        result = sums[-1].logsumexp(1)
        ctx.save_for_backward(logits, frame_lengths, sums, result)
        ctx.max_tokens_per_frame = max_tokens_per_frame
        return result.to(logits.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_result: Tensor) -> tuple[Tensor, None, None]:
        logits, frame_lengths, sums, result = ctx.saved_tensors
        grads = torch.zeros_like(logits)
        point = grad_result[:, None].double() * _share(sums[-1], result[:, None])
        for t in range(logits.shape[1] - 1, -1, -1):
            runs = (t < frame_lengths)[:, None]
            token_weights, blank_weights = _without_blanks(logits[:, t]), logits[:, t, :, BLANK]
            rounds = _token_rounds(sums[t], token_weights, ctx.max_tokens_per_frame)
            occupied = torch.where(runs, point, 0.0)
            point_before, frame_grads = _frame_backward(rounds, token_weights, blank_weights, sums[t + 1], occupied)
            grads[:, t] = frame_grads.to(grads.dtype)
            point = torch.where(runs, point_before, point)
        return grads, None, None


def _token_rounds(start: Tensor, token_weights: Tensor, max_tokens_per_frame: int) -> Tensor:
    """Sums over partial paths after 0, 1, ... tokens at one frame.

    Args:
        start: [B, V**c] sums on entering the frame
        token_weights: [B, V**c, V] with -inf for the blank

    Returns:
        [S + 1, B, V**c]
    """
    rounds = [start]
    for _ in range(max_tokens_per_frame):
        arcs = _by_target(rounds[-1][:, :, None] + token_weights)
        rounds.append(arcs.logsumexp(1).flatten(1))
    return torch.stack(rounds)


def _without_blanks(weights: Tensor) -> Tensor:
    """A copy of the weights [B, V**c, V] in float64 with -inf for the blank."""
    token_weights = weights.to(torch.float64, copy=True)
    token_weights[..., BLANK] = -math.inf
    return token_weights


def _by_target(arcs: Tensor) -> Tensor:
    """Arcs [B, V**c, V] as a view [B, n, m, k] in which the n arcs of dimension 1 lead to the same of m * k states.

    Emitting drops the oldest digit and appends the token, so states that differ in the oldest digit meet. Without
    context all arcs meet.
    """
    utterances, states, vocabulary = arcs.shape
    if states == 1:
        return arcs.view(utterances, vocabulary, 1, 1)
    return arcs.view(utterances, vocabulary, states // vocabulary, vocabulary)


def _frame_backward(
    rounds: Tensor, token_weights: Tensor, blank_weights: Tensor, done: Tensor, point: Tensor
) -> tuple[Tensor, Tensor]:
    """Divide the occupation of the states after a frame among the arcs inside the frame.

    Args:
        rounds: [S + 1, B, V**c]
        token_weights: [B, V**c, V] with -inf for the blank
        blank_weights: [B, V**c]
        done: [B, V**c] sums after the frame
        point: [B, V**c] occupation of the states after the frame

    Returns:
        ([B, V**c] occupation on entering the frame, [B, V**c, V] occupation of the arcs)
    """
    grads = torch.zeros_like(token_weights)
    blank_parts = _share(rounds + blank_weights, done) * point
    occupation = blank_parts[-1]
    for s in range(len(rounds) - 2, -1, -1):
        arcs = rounds[s][:, :, None] + token_weights
        by_target = _by_target(arcs)
        targets = by_target.shape[0], 1, *by_target.shape[2:]
        # In place on the view: these tensors are the largest here. What is blocked, minus infinity, has no share.
        whole = rounds[s + 1].masked_fill(rounds[s + 1] == -math.inf, math.inf)
        by_target.sub_(whole.view(targets)).exp_().mul_(occupation.view(targets))
        grads += arcs
        occupation = blank_parts[s] + arcs.sum(2)
    grads[..., BLANK] = blank_parts.sum(0)
    return occupation, grads


def _share(part: Tensor, whole: Tensor) -> Tensor:
    """exp(part - whole), and 0 where the whole is nothing."""
    return torch.where(whole > -math.inf, part - whole, -math.inf).exp()


def sequence_weights(logits: Tensor, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Weights of the arcs of given token sequences, and the states of their prefixes.

    Args:
        logits: [B, T, V**c, V]
        tokens: [B, N, U]
        lengths: [B, N], -1 where there is no sequence

    Returns:
        token_weights [B, N, U, T], blank_weights [B, N, U + 1, T], states [B, N, U + 1]
    """
    states = prefix_states(tokens, lengths, context_size(logits), logits.shape[3])
    within = torch.arange(tokens.shape[2], device=tokens.device) < lengths[:, :, None]
    labels = torch.where(within, tokens, BLANK)
    utterance = torch.arange(tokens.shape[0], device=tokens.device)[:, None, None]
    # Index by utterance, state and label; frames stay a dimension and come last.
    by_state = logits.permute(0, 2, 3, 1)
    return by_state[utterance, states[..., :-1], labels], by_state[utterance, states, BLANK], states


def prefix_states(tokens: Tensor, lengths: Tensor, context: int, vocabulary: int) -> Tensor:
    """State of each prefix: [B, N, U] tokens to [B, N, U + 1]; prefixes beyond a length have any state."""
    _check_lengths("lengths", lengths, tokens.shape[2], tuple(tokens.shape[:2]), least=-1)
    within = torch.arange(tokens.shape[2], device=tokens.device) < lengths[:, :, None]
    if bool((within & ((tokens <= BLANK) | (tokens >= vocabulary))).any()):
        raise ValueError(f"tokens holds a blank (0) or an id outside 1 to {vocabulary - 1} inside a sequence")
    state = torch.zeros_like(tokens[..., :1])
    states = [state]
    for u in range(tokens.shape[2]):
        label = torch.where(within[..., u : u + 1], tokens[..., u : u + 1], BLANK)
        state = (state * vocabulary + label) % vocabulary**context
        states.append(state)
    return torch.cat(states, 2)


@torch.no_grad()
def nbest_share(
    logits: Tensor, frame_lengths: Tensor, tokens: Tensor, lengths: Tensor, max_tokens_per_frame: int
) -> Tensor:
    """The share of exact Z that a list of token sequences covers, each counted once.

    Args:
        logits: [B, T, V**c, V]
        frame_lengths: [B]
        tokens: [B, N, U]
        lengths: [B, N], -1 where there is no sequence
        max_tokens_per_frame: the same limit for the sequences' alignments as for Z, so that the share is at most 1

    Returns:
        [B] between 0 and 1
    """
    exact = log_normaliser(logits.double(), frame_lengths, max_tokens_per_frame)
    token_weights, blank_weights, _ = sequence_weights(logits.double(), tokens, lengths)
    scores = capped_scores(token_weights, blank_weights, lengths, frame_lengths, max_tokens_per_frame)
    scores = scores.masked_fill(~distinct_sequences(tokens, lengths), -math.inf)
    return (scores.logsumexp(1) - exact).exp().to(logits.dtype)


def capped_scores(
    token_weights: Tensor, blank_weights: Tensor, lengths: Tensor, frame_lengths: Tensor, max_tokens_per_frame: int
) -> Tensor:
    """[B, N] log-sums over the alignments with at most so many tokens per frame, differentiable.

    `recursion.sequence_scores` has no such limit, so it could exceed a Z that has one.

    Args:
        token_weights: [B, N, U, T]
        blank_weights: [B, N, U + 1, T]
        lengths: [B, N]
        frame_lengths: [B]
    """
    # The logarithm of a sum of zeros has no gradient, not even zero; that of next to nothing has.
    token_weights, blank_weights = token_weights.clamp(min=UNREACHABLE), blank_weights.clamp(min=UNREACHABLE)
    sums = torch.full_like(blank_weights[..., 0], UNREACHABLE)
    sums[..., 0] = 0
    for t in range(blank_weights.shape[3]):
        rounds = [sums]
        for _ in range(max_tokens_per_frame):
            emitted = rounds[-1][..., :-1] + token_weights[..., t]
            rounds.append(torch.nn.functional.pad(emitted, (1, 0), value=UNREACHABLE))
        done = (torch.stack(rounds) + blank_weights[..., t]).logsumexp(0)
        sums = torch.where((t < frame_lengths)[:, None, None], done, sums)
    scores = sums.gather(2, lengths.clamp(min=0)[:, :, None])[..., 0]
    return scores.masked_fill(scores < UNREACHABLE / 2, -math.inf)


def _check_lengths(name: str, lengths: Tensor, most: int, shape: tuple[int, ...], least: int = 0) -> None:
    if tuple(lengths.shape) != shape or lengths.dtype.is_floating_point:
        raise ValueError(f"{name} must be integers of shape {list(shape)}; it has shape {list(lengths.shape)}")
    if bool(((lengths < least) | (lengths > most)).any()):
        raise ValueError(f"{name} must be between {least} and {most}")
