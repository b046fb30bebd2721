"""The prefix tree of an utterance's token sequences: its reference and their competitors share what they begin with.

Weights at a lattice point depend on the frame and the prefix only, so each distinct prefix is evaluated once, however
many sequences run through it. Trees of all utterances are packed behind one another and built together, by comparing
all pairs of sequences of an utterance: no loop over utterances, sequences or tokens, and no hashing.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from transducer_gn.common.units import BLANK


@dataclass(frozen=True)
class PrefixTree:
    """Distinct prefixes (nodes) of B utterances with S sequences each, of up to U tokens; P nodes in all.

    Nodes of an utterance follow one another, parents before children; those of sequence 0, the reference, come first.

    Attributes:
        parents: [P] node of the prefix without its last token; -1 for the empty prefix
        tokens: [P] last token of the prefix; blank for the empty prefix
        depths: [P] number of tokens of the prefix
        utterances: [P] utterance the node belongs to
        multiplicities: [P] number of distinct sequences that run through the node
        nodes: [B, S, U + 1] node of each prefix of each sequence; beyond its length that of the whole sequence
        lengths: [B, S] number of tokens; 0 where there is no sequence
        distinct: [B, S] whether the sequence is there and differs from all before it
    """

    parents: Tensor
    tokens: Tensor
    depths: Tensor
    utterances: Tensor
    multiplicities: Tensor
    nodes: Tensor
    lengths: Tensor
    distinct: Tensor

    @property
    def in_reference(self) -> Tensor:
        """[P] whether the node is a prefix of its utterance's reference."""
        flags = torch.zeros_like(self.parents, dtype=torch.bool)
        flags[self.nodes[:, 0].flatten()] = True
        return flags


def build_prefix_tree(tokens: Tensor, lengths: Tensor) -> PrefixTree:
    """Build the trees of a batch. Waits for the device, once to check its arguments and once to count nodes.

    Args:
        tokens: [B, S, U] token ids; sequence 0 of each utterance is its reference. Ids beyond a length are ignored.
        lengths: [B, S] number of tokens; -1 where there is no sequence. Every utterance has a reference.

    Returns:
        the packed trees. A sequence that equals an earlier one is not `distinct`.
    """
    check_sequences(tokens, lengths)
    steps = torch.arange(tokens.shape[2] + 1, device=tokens.device)
    has_prefix = steps <= lengths[:, :, None]
    same = _same_prefixes(tokens, has_prefix)
    owners = _first_sequences(same)
    sequences = torch.arange(tokens.shape[1], device=tokens.device)
    is_node = has_prefix & (owners == sequences[:, None])

    # The running number of each node, read off at the sequence that owns the prefix: [B, S, U + 1].
    numbers = is_node.flatten().cumsum(0).view(is_node.shape) - 1
    last_step = lengths.clamp(min=0)[:, :, None]
    nodes = numbers.gather(1, owners).gather(2, torch.minimum(steps.expand_as(numbers), last_step))

    utterances, owner, depths = is_node.nonzero(as_tuple=True)
    with_root = torch.nn.functional.pad(tokens, (1, 0), value=BLANK)
    distinct = (lengths >= 0) & ~_repeats_an_earlier(same, lengths)
    passes = (has_prefix & distinct[:, :, None]).long()
    return PrefixTree(
        parents=torch.where(depths > 0, nodes[utterances, owner, (depths - 1).clamp(min=0)], -1),
        tokens=with_root[utterances, owner, depths],
        depths=depths,
        utterances=utterances,
        multiplicities=torch.zeros_like(depths).index_add_(0, nodes.flatten(), passes.flatten()),
        nodes=nodes,
        lengths=lengths.clamp(min=0),
        distinct=distinct,
    )


def distinct_sequences(tokens: Tensor, lengths: Tensor) -> Tensor:
    """[B, S]: whether a sequence is there and differs from all before it.

    Args:
        tokens: [B, S, U]
        lengths: [B, S], -1 where there is no sequence
    """
    steps = torch.arange(tokens.shape[2] + 1, device=tokens.device)
    same = _same_prefixes(tokens, steps <= lengths[:, :, None])
    return (lengths >= 0) & ~_repeats_an_earlier(same, lengths)


def _same_prefixes(tokens: Tensor, has_prefix: Tensor) -> Tensor:
    """[B, S, S, U + 1]: whether two sequences both have a prefix of that length and the same one.

    Args:
        tokens: [B, S, U]
        has_prefix: [B, S, U + 1]
    """
    equal = (tokens[:, :, None] == tokens[:, None]).cumprod(-1, dtype=torch.uint8).bool()
    equal = torch.nn.functional.pad(equal, (1, 0), value=True)
    return equal & has_prefix[:, :, None] & has_prefix[:, None]


def _first_sequences(same: Tensor) -> Tensor:
    """[B, S, U + 1]: the first sequence that has the same prefix; any where there is no prefix of that length."""
    sequences = torch.arange(same.shape[2], device=same.device, dtype=torch.int16)
    return torch.where(same, sequences[:, None], same.shape[2] - 1).amin(2).long()


def _repeats_an_earlier(same: Tensor, lengths: Tensor) -> Tensor:
    """[B, S]: whether all tokens and the length of an earlier sequence are the same."""
    whole = lengths.clamp(min=0)[:, :, None, None].expand(*same.shape[:3], 1)
    equal = same.gather(3, whole)[..., 0] & (lengths[:, :, None] == lengths[:, None])
    return equal.tril(-1).any(2)


def check_sequences(tokens: Tensor, lengths: Tensor) -> None:
    """Raise ValueError naming what does not fit. Waits for the device once."""
    if tokens.dim() != 3 or tokens.dtype.is_floating_point:
        raise ValueError(f"tokens must be integers [B, S, U]; it is {tokens.dtype} of shape {list(tokens.shape)}")
    if lengths.shape != tokens.shape[:2] or lengths.dtype.is_floating_point:
        raise ValueError(
            f"lengths must be integers {list(tokens.shape[:2])} to go with tokens {list(tokens.shape)}; "
            f"it is {lengths.dtype} of shape {list(lengths.shape)}"
        )
    if tokens.shape[1] == 0:
        raise ValueError("tokens has no sequence; sequence 0 of each utterance must be its reference")
    longest = tokens.shape[2]
    within = torch.arange(longest, device=tokens.device) < lengths[:, :, None]
    faults = {
        f"lengths must be between 0 and {longest}, or -1 for no sequence": (lengths < -1) | (lengths > longest),
        "lengths[:, 0] is -1: every utterance needs a reference": lengths[:, 0] < 0,
        "tokens holds a blank (0) or a negative id inside a sequence": within & (tokens <= BLANK),
    }
    for sentence, flag in zip(faults, torch.stack([fault.any() for fault in faults.values()]).tolist(), strict=True):
        if flag:
            raise ValueError(sentence)
